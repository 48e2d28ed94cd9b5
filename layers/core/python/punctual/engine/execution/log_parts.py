"""The log of an attempt outside, stored in parts while it runs and as one blob at its end.

A part is named by its offset in the log, so the same part sent again replaces itself.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import hash_fraction
from punctual.engine.changes.run_results import log_key, log_part_key, log_parts_folder
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE, Blob, Blobs
from punctual.engine.ports.rows import JobKey

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_LIVE_LOG_READ_BYTES = 4 * 1024 * 1024  # of one answer to a reader of the log
JOINED_PART_BYTES = 1024 * 1024  # parts are joined up to about this size
PARTS_BETWEEN_JOINS = 64  # on average
PARTS_READ_AT_ONCE = 16
# The newest parts stay as they are. A request that was delayed may put one of them again.
MIN_SEPARATE_PARTS = 32


class MergedLog(NamedTuple):
    """The whole log of an attempt as one blob, and the names of the parts that it replaces."""

    blob: Blob
    part_names: Sequence[str]


def log_part(key: JobKey, run_id: str, attempt: int, offset: int, text: bytes) -> Blob | None:
    """Return the blob of a part, or None if nothing of it is below the limit of a log."""
    kept = text[: max(0, MAX_LOG_BYTES - offset)]
    if not kept:
        return None
    return Blob(
        log_part_key(log_parts_folder(key, run_id, attempt), offset), kept, TEXT_CONTENT_TYPE
    )


def read_log_parts(
    blobs: Blobs, key: JobKey, run_id: str, attempt: int, after: int
) -> bytes | None:
    """Return the log from the offset `after`, up to a limit. None means that no part exists."""
    folder = log_parts_folder(key, run_id, attempt)
    parts = [(_offset_of(name), name) for name in blobs.list_names(folder)]
    wanted = [
        (offset, name)
        for (offset, name), (next_offset, _) in pairwise([*parts, (MAX_LOG_BYTES, "")])
        if next_offset > after and offset < after + MAX_LIVE_LOG_READ_BYTES
    ]
    return _join(blobs, wanted, after) if parts else None


def is_join_due(run_id: str, offset: int) -> bool:
    """Return whether the parts are to be joined after the part at this offset.

    A hash decides, so no count has to be stored, and the same part decides alike again.
    """
    return hash_fraction(run_id, str(offset)) < 1 / PARTS_BETWEEN_JOINS


def join_parts(blobs: Blobs, key: JobKey, run_id: str, attempt: int) -> None:
    """Join small parts, so that the log of a day still merges within one call.

    The joined part takes the name of its first one, and is stored before the others are deleted.
    """
    names = blobs.list_names(log_parts_folder(key, run_id, attempt))
    parts = [(_offset_of(name), name) for name in names]
    group: list[tuple[int, str]] = []
    for (offset, name), (next_offset, _) in pairwise(parts[: 1 - MIN_SEPARATE_PARTS]):
        group.append((offset, name))
        if next_offset - group[0][0] >= JOINED_PART_BYTES:
            _join_group(blobs, group)
            group = []
    _join_group(blobs, group)


def _join_group(blobs: Blobs, group: Sequence[tuple[int, str]]) -> None:
    if len(group) < 2:
        return
    start, name = group[0]
    try:
        data = _join(blobs, group, start)
    except Unavailable:
        return  # another call joins the same parts
    blobs.put(name, data, TEXT_CONTENT_TYPE)
    blobs.delete([other for _, other in group[1:]])


def merge_log(
    blobs: Blobs, key: JobKey, run_id: str, attempt: int, offset: int, text: bytes
) -> MergedLog | None:
    """Return the whole log with its last text, or None if the attempt logged nothing.

    Without an offset the text is the whole log, and no part exists. Raise `Unavailable` if the
    parts are gone, because another call has merged them.
    """
    names = blobs.list_names(log_parts_folder(key, run_id, attempt)) if offset else ()
    if offset and (not names or _offset_of(names[0])):
        raise Unavailable("The log is being stored by another call: try again.")
    data = _join(blobs, [(_offset_of(name), name) for name in names], 0)
    data = _joined(data, 0, offset, text)[:MAX_LOG_BYTES]
    if not data:
        return None
    return MergedLog(Blob(log_key(key, run_id, attempt), data, TEXT_CONTENT_TYPE), names)


def _join(blobs: Blobs, parts: Sequence[tuple[int, str]], start: int) -> bytes:
    """Return the text of these parts from the offset `start` on.

    A part that is gone was joined to another one, or merged, since the parts were listed. Parts
    may overlap, if their sender is hostile. So a part that adds nothing is not read, and few parts
    are read at once.
    """
    data = b""
    unread = list(parts)
    while unread and len(data) < MAX_LOG_BYTES:
        chunk, unread = unread[:PARTS_READ_AT_ONCE], unread[PARTS_READ_AT_ONCE:]
        texts = blobs.get_many([name for _, name in chunk])
        for (offset, _), text in zip(chunk, texts, strict=True):
            if text is None:
                raise Unavailable("The log is being stored in another form: try again.")
            data = _joined(data, start, offset, text)
        end = start + len(data)
        following = pairwise([*unread, (MAX_LOG_BYTES, "")])
        unread = [part for part, (next_offset, _) in following if next_offset > end]
    return data


def _joined(data: bytes, start: int, offset: int, part: bytes) -> bytes:
    """Return `data`, which begins at `start`, with the bytes of a part that it lacks."""
    known = max(0, start + len(data) - offset)
    return data + part[known:]


def _offset_of(name: str) -> int:
    return int(name.rpartition("/")[2])
