"""The log of an attempt outside, stored in parts while it runs and as one blob at its end.

A part is named by its offset in the log, so the same part sent again replaces itself.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from punctual.engine.changes.run_results import log_key, log_part_key, log_parts_folder
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE, Blob, Blobs
from punctual.engine.ports.rows import JobKey

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_LIVE_LOG_READ_BYTES = 4 * 1024 * 1024  # of one answer to a reader of the log


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


def merge_log(
    blobs: Blobs, key: JobKey, run_id: str, attempt: int, offset: int, text: bytes
) -> MergedLog | None:
    """Return the whole log with its last text, or None if the attempt logged nothing.

    Without an offset the text is the whole log, and no part exists.
    """
    names = blobs.list_names(log_parts_folder(key, run_id, attempt)) if offset else ()
    data = _join(blobs, [(_offset_of(name), name) for name in names], 0)
    data = _joined(data, 0, offset, text)[:MAX_LOG_BYTES]
    if not data:
        return None
    return MergedLog(Blob(log_key(key, run_id, attempt), data, TEXT_CONTENT_TYPE), names)


def _join(blobs: Blobs, parts: Sequence[tuple[int, str]], start: int) -> bytes:
    """Return the text of these parts from the offset `start` on."""
    data = b""
    texts = blobs.get_many([name for _, name in parts])
    for (offset, _), text in zip(parts, texts, strict=True):
        data = _joined(data, start, offset, text or b"")
    return data


def _joined(data: bytes, start: int, offset: int, part: bytes) -> bytes:
    """Return `data`, which begins at `start`, with the bytes of a part that it lacks."""
    known = max(0, start + len(data) - offset)
    return data + part[known:]


def _offset_of(name: str) -> int:
    return int(name.rpartition("/")[2])
