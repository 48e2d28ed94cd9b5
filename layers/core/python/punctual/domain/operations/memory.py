"""The operations that acted on a job lately, as the job state remembers them.

A slice of an operation may be repeated after a crash. In between, a person may take back what it
did. So the status of the job does not tell whether the operation has acted.

An entry has 9 bytes: a hash of the operation id, and the hour. It is kept for at least 7 hours. No
slice of an operation is repeated after more than 6 (`MAX_SLICE_AGE`). A job with too many entries
takes no further operation until the first of them is old.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import blake2b

from punctual.domain.utc import EPOCH

MAX_REMEMBERED_OPERATIONS = 64  # 768 bytes in a row of DynamoDB
MEMORY_HOURS = 7
_HOUR = timedelta(hours=1)
_HASH_BYTES, _HOUR_BYTES = 6, 3
_ENTRY_BYTES = _HASH_BYTES + _HOUR_BYTES


def remembers(memory: bytes, operation_id: str) -> bool:
    """Return whether the operation has acted on the job.

    >>> remembers(remember(b"", "a", EPOCH), "a"), remembers(b"", "a")
    (True, False)
    """
    digest = _digest(operation_id)
    return any(entry[:_HASH_BYTES] == digest for entry in _entries(memory))


def is_full(memory: bytes, now: datetime) -> bool:
    return len(without_old(memory, now)) >= MAX_REMEMBERED_OPERATIONS * _ENTRY_BYTES


def remember(memory: bytes, operation_id: str, now: datetime) -> bytes:
    """Return the memory with the operation, and without old entries.

    >>> len(remember(remember(b"", "a", EPOCH), "b", EPOCH))
    18
    """
    entry = _digest(operation_id) + _hour_of(now).to_bytes(_HOUR_BYTES, "big")
    return without_old(memory, now) + entry


def without_old(memory: bytes, now: datetime) -> bytes:
    """Return the entries of the last hours. One that lies far in the future is wrong, and goes.

    >>> without_old(remember(b"", "a", EPOCH), EPOCH + (MEMORY_HOURS + 1) * _HOUR)
    b''
    """
    if not memory:
        return memory
    hour = _hour_of(now)
    return b"".join(
        entry
        for entry in _entries(memory)
        if abs(hour - int.from_bytes(entry[_HASH_BYTES:], "big")) <= MEMORY_HOURS
    )


def _entries(memory: bytes) -> Iterator[bytes]:
    return (memory[start : start + _ENTRY_BYTES] for start in range(0, len(memory), _ENTRY_BYTES))


def _digest(operation_id: str) -> bytes:
    return blake2b(operation_id.encode(), digest_size=_HASH_BYTES).digest()


def _hour_of(now: datetime) -> int:
    return (now - EPOCH) // _HOUR
