"""The log of an external executor, stored in parts while it runs and as one blob at its end.

Part `n` holds the bytes from `n * LOG_PART_BYTES` on, as far as they have arrived. So a log has a
fixed number of parts at most, whatever its sender claims. A part only grows: each write names the
version that it read, and adds what this version lacks. The parts of a claim carry its fencing
token, so another claim of the same attempt never meets them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.run import LOST_LETTER, Run
from punctual.engine.changes.run_results import log_key, log_part_key, log_parts_folder
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE, Blob, Blobs, BlobVersion, VersionedPut
from punctual.engine.ports.rows import JobKey

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_LIVE_LOG_READ_BYTES = 4 * 1024 * 1024  # of one answer to a reader of the log
LOG_PART_BYTES = 256 * 1024
PARTS_READ_AT_ONCE = 16
MAX_TEXTS_AT_ONCE = 64
MAX_LOG_WRITES = 3  # of one text, while other calls change the same part


class LogOfClaim(NamedTuple):
    """Names the log of one claim."""

    key: JobKey
    run_id: str
    attempt: int
    token: int

    @property
    def folder(self) -> str:
        """Return the folder of all claims of this attempt."""
        return log_parts_folder(self.key, self.run_id, self.attempt)

    def part_name(self, number: int) -> str:
        return log_part_key(self.folder, self.token, number)

    def has_part(self, name: str) -> bool:
        return name.startswith(f"{self.folder}{self.token}-")


class LogText(NamedTuple):
    """Text of a log, and the number of bytes before it."""

    log: LogOfClaim
    offset: int
    text: bytes

    @property
    def end(self) -> int:
        """Return the end of what may be stored of this text."""
        return min(self.offset + len(self.text), MAX_LOG_BYTES)

    @property
    def part_names(self) -> Sequence[str]:
        if self.end <= self.offset:
            return ()
        last = (self.end - 1) // LOG_PART_BYTES
        return [
            self.log.part_name(number) for number in range(self.offset // LOG_PART_BYTES, last + 1)
        ]


class MergedLog(NamedTuple):
    """The whole log of an attempt as one blob, and the names of the parts that it replaces."""

    blob: Blob
    part_names: Sequence[str]
    is_truncated: bool


def append_to_logs(blobs: Blobs, texts: Sequence[LogText]) -> None:
    """Store texts in the parts of their logs. What is stored already stays as it is.

    Few parts are in memory at a time, because each may be full.
    """
    for start in range(0, len(texts), MAX_TEXTS_AT_ONCE):
        _append(blobs, texts[start : start + MAX_TEXTS_AT_ONCE])


def _append(blobs: Blobs, texts: Sequence[LogText]) -> None:
    remaining = texts
    for _ in range(MAX_LOG_WRITES):
        remaining = _append_once(blobs, remaining)
        if not remaining:
            return
    raise Unavailable("The log is being stored by another call: try again.")


def _append_once(blobs: Blobs, texts: Sequence[LogText]) -> list[LogText]:
    """Return the texts that must be stored again, because another call changed their parts."""
    names = list(dict.fromkeys(name for text in texts for name in text.part_names))
    stored = dict(zip(names, blobs.get_versions(names) if names else (), strict=True))
    contents = {name: version.data if version else b"" for name, version in stored.items()}
    for text in texts:
        for place, name in enumerate(text.part_names):
            number = text.offset // LOG_PART_BYTES + place
            contents[name] = _with_text(contents[name], number * LOG_PART_BYTES, text)
    puts = [
        VersionedPut(Blob(name, contents[name], TEXT_CONTENT_TYPE), _version_of(version))
        for name, version in stored.items()
        if len(contents[name]) > len(version.data if version else b"")
    ]
    lost: set[str] = set()
    for put, is_stored in zip(puts, blobs.put_versions(puts) if puts else (), strict=True):
        if isinstance(is_stored, Unavailable):
            raise is_stored
        if not is_stored:
            lost.add(put.blob.name)
    return [text for text in texts if not lost.isdisjoint(text.part_names)]


def _version_of(stored: BlobVersion | None) -> str:
    return stored.version if stored else ""


def _with_text(data: bytes, start: int, text: LogText) -> bytes:
    """Return a part that begins at `start`, with what it lacks of the text.

    Text behind a gap is left out. Only a sender that skips bytes has one.
    """
    end = start + len(data)
    if text.offset > end:
        return data
    return (data + text.text[end - text.offset : text.end - text.offset])[:LOG_PART_BYTES]


def read_log_parts(blobs: Blobs, log: LogOfClaim, after: int) -> bytes | None:
    """Return the log from the offset `after`, up to a limit. None means that no part exists."""
    number, skipped = divmod(min(after, MAX_LOG_BYTES), LOG_PART_BYTES)
    first = blobs.get(log.part_name(number), skipped)
    if first is None:
        has_parts = number > 0 and blobs.get(log.part_name(0), 0, 1) is not None
        return b"" if has_parts else None
    if skipped + len(first) < LOG_PART_BYTES:
        return first
    limit = MAX_LIVE_LOG_READ_BYTES // LOG_PART_BYTES - 1
    return first + b"".join(_read_parts(blobs, log, number + 1, limit).values())


def merge_log(blobs: Blobs, last: LogText, probes: bool = False) -> MergedLog | None:
    """Return the whole log with its last text, or None if the attempt logged nothing.

    Without an offset the text is the whole log, and no part exists. With `probes` the sender is
    gone, and parts may exist. Raise `Unavailable` if the parts are gone, because another call has
    merged them.
    """
    parts: Mapping[str, bytes] = {}
    if last.offset or probes:
        parts = _read_parts(blobs, last.log, 0, _max_parts(), last.offset)
    if last.offset and not parts:
        raise Unavailable("The log is being stored by another call: try again.")
    stored = b"".join(parts.values())
    data = (stored + last.text[max(0, len(stored) - last.offset) :])[:MAX_LOG_BYTES]
    if not data:
        return None
    key, run_id, attempt, token = last.log
    blob = Blob(log_key(key, run_id, attempt), data, TEXT_CONTENT_TYPE, token)
    has_gap = last.offset > len(stored)
    return MergedLog(blob, list(parts), has_gap or last.offset + len(last.text) > MAX_LOG_BYTES)


def _max_parts() -> int:
    return -(-MAX_LOG_BYTES // LOG_PART_BYTES)


def _read_parts(
    blobs: Blobs, log: LogOfClaim, start: int, limit: int, known_bytes: int = 0
) -> dict[str, bytes]:
    """Return up to `limit` parts by name, until the first one that is not full.

    The log has `known_bytes` at least, so the parts of these are read together.
    """
    parts: dict[str, bytes] = {}
    number, end = start, min(start + limit, _max_parts())
    known_parts = known_bytes // LOG_PART_BYTES + 1
    while number < end:
        count = min(PARTS_READ_AT_ONCE, max(1, known_parts - number), end - number)
        names = [log.part_name(number + place) for place in range(count)]
        for name, data in zip(names, blobs.get_many(names), strict=True):
            if data is None:
                return parts
            parts[name] = data
            if len(data) < LOG_PART_BYTES:
                return parts
        number += count
        known_parts = max(known_parts, number + PARTS_READ_AT_ONCE // 4)
    return parts


def leftover_parts(blobs: Blobs, key: JobKey, run: Run) -> list[str]:
    """Return the parts that lost attempts and returned claims of a run have left.

    A run without them, which is the usual one, costs no call.
    """
    attempts = [
        number for number, letter in enumerate(run.past_attempts, 1) if letter == LOST_LETTER
    ]
    names: list[str] = []
    if run.return_count:
        own = LogOfClaim(key, run.run_id, run.attempt, run.token)
        names += [name for name in blobs.list_names(own.folder) if not own.has_part(name)]
    for number in attempts:
        names += blobs.list_names(log_parts_folder(key, run.run_id, number))
    return names
