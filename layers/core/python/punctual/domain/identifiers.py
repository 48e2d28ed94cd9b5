"""Shards, buckets, ids that derive from names and times, and write ids.

By a write id a request recognizes its own swaps. A batch numbers one new id.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from punctual.domain.utc import EPOCH, MICROSECOND, MILLISECOND

BUCKET_LENGTH = timedelta(minutes=1)
_WRITE_ID_DIGITS = 12  # hex digits; enough to distinguish the last writers of one job state
_RANDOM_LIMIT = 1 << 62  # the low 62 bits are random; the two bits above them are the variant


def shard_of(job_id: str, shards: int) -> int:
    return crc32(job_id.encode()) % shards


def milliseconds(at: datetime) -> int:
    """Return the milliseconds since 1970, rounded down.

    >>> milliseconds(EPOCH + 1500 * MILLISECOND + 999 * MICROSECOND)
    1500
    """
    return (at - EPOCH) // MILLISECOND


def bucket_of(at: datetime) -> datetime:
    """Return the UTC minute that contains `at`."""
    return at.replace(second=0, microsecond=0)


def sortable_id(at: datetime, entropy: bytes) -> str:
    """Return a version 7 UUID: 48 bits of time, and 74 bits of `entropy` (at least ten bytes).

    >>> sortable_id(EPOCH, bytes(10))
    '00000000-0000-7000-8000-000000000000'
    """
    random_bits = int.from_bytes(entropy[:10], "big") & (2**74 - 1)  # as many bits as fit, in order
    value = (max(0, milliseconds(at)) & 0xFFFFFFFFFFFF) << 80
    value |= 7 << 76 | (random_bits >> 62) << 64
    value |= 2 << 62 | random_bits & 0x3FFFFFFFFFFFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(at: datetime, *parts: str) -> str:
    """Return the id for `parts` at `at`. Equal arguments return the same id.

    >>> derived_id(EPOCH, "job", "x") == derived_id(EPOCH, "job", "x")
    True
    """
    return sortable_id(at, blake2b("\0".join(parts).encode(), digest_size=10).digest())


def occurrence_id(job_id: str, scheduled_at: datetime) -> str:
    """Return the run id of an occurrence. Firing it twice makes only one run.

    >>> occurrence_id("job", EPOCH)[:15]
    '00000000-0000-7'
    """
    prefix, digest = _id_prefix_and_digest(scheduled_at)
    digest = digest.copy()
    digest.update(job_id.encode())
    random_bits = int.from_bytes(digest.digest(), "big")
    last_bits = random_bits & _RANDOM_LIMIT - 1 | _RANDOM_LIMIT << 1
    suffix = f"{random_bits >> 62 & 0xFFF:03x}{last_bits:016x}"
    return f"{prefix}{suffix[:3]}-{suffix[3:7]}-{suffix[7:]}"


@lru_cache(maxsize=64)
def _id_prefix_and_digest(at: datetime) -> tuple[str, blake2b]:
    """Return the first characters of all ids of a moment, and a digest to continue."""
    digest = blake2b(b"%d" % ((at - EPOCH) // MICROSECOND), digest_size=10)
    return sortable_id(at, bytes(10))[:15], digest


def jitter_ms(job_id: str, seconds: int) -> int:
    """Return the fixed offset of a job in [0, seconds), in milliseconds."""
    return crc32(b"jitter" + job_id.encode()) % (seconds * 1000) if seconds else 0


def hash_fraction(*parts: str) -> float:
    """Return a hash in [0, 1): jitter that is the same on every call."""
    return crc32("\0".join(parts).encode()) / 2**32


def write_id_of(random_id: str) -> str:
    return random_id[-_WRITE_ID_DIGITS:]


def new_write_id(new_id: Callable[[], str]) -> str:
    return write_id_of(new_id())


def new_write_ids(new_id: Callable[[], str], count: int) -> list[str]:
    write_id = new_write_id(new_id)
    return [f"{write_id}.{number}" for number in range(count)]
