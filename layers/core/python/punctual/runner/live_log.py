"""The log of a run while it goes on: what the script printed and the API does not have yet."""

import codecs
import threading
from typing import NamedTuple

from punctual.tasks.limits import MAX_LOG_BYTES

# In JSON a character takes up to six bytes, and the body of a call may have 5 MiB.
MAX_LOG_PART_BYTES = 512 * 1024


class LogPart(NamedTuple):
    """A piece of the log. Its offset counts the bytes before it, in UTF-8."""

    text: str
    offset: int
    size: int


class LiveLog:
    """Collects a log as text. Bytes that are not UTF-8 become replacement characters.

    The script's thread writes, and the thread of the heartbeat takes parts.
    """

    def __init__(self, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._sent_bytes = 0
        self.is_truncated = False

    def log(self, data: bytes) -> None:
        self._put(self._decoder.decode(data))

    def end(self) -> None:
        """Take the rest of a character that was cut in two. No more data follows."""
        self._put(self._decoder.decode(b"", True))

    def next_part(self, max_bytes: int = MAX_LOG_PART_BYTES) -> LogPart:
        """Return the first bytes that were not sent, without a character cut in two."""
        with self._lock:
            data = bytes(self._pending[:max_bytes])
            text = data.decode("utf-8", "ignore")
            return LogPart(text, self._sent_bytes, len(text.encode()))

    def confirm(self, part: LogPart) -> None:
        """Forget a part that the API has stored."""
        with self._lock:
            if part.offset == self._sent_bytes:
                del self._pending[: part.size]
                self._sent_bytes += part.size

    def drop_rest(self) -> None:
        """Forget all that was not sent, and flag the log as cut."""
        with self._lock:
            self.is_truncated |= bool(self._pending)
            self._pending.clear()

    @property
    def pending_bytes(self) -> int:
        with self._lock:
            return len(self._pending)

    def _put(self, text: str) -> None:
        if not self._is_kept:
            return
        data = text.encode()
        with self._lock:
            free_bytes = MAX_LOG_BYTES - self._sent_bytes - len(self._pending)
            if len(data) > free_bytes:
                self.is_truncated = True
                data = data[: max(free_bytes, 0)].decode("utf-8", "ignore").encode()
            self._pending += data
