"""Capture the output, the log and the end of standard error of a script, within limits."""

import re

from punctual.tasks.contract import Recorder
from punctual.tasks.limits import MAX_LOG_BYTES, MAX_OUTPUT_BYTES, STDERR_TAIL_BYTES
from punctual.tasks.redaction import Redactor

_NOTHING = re.compile(rb"(?!)")
_LONGEST_DENIAL = 40


class Capture:
    """Redacts each stream separately, then merges both in the log.

    `was_denied` is true if one of `denials` matched anywhere in standard error.
    """

    def __init__(
        self,
        recorder: Recorder,
        redactor: Redactor,
        max_output: int = MAX_OUTPUT_BYTES,
        max_log: int = MAX_LOG_BYTES,
        denials: re.Pattern[bytes] = _NOTHING,
    ) -> None:
        self._recorder = recorder
        self._clean_stdout = redactor.stream()
        self._clean_stderr = redactor.stream()
        self._max_output = max_output
        self._log_left = max_log
        self._output = bytearray()
        self._tail = b""
        self._seam = b""
        self._denials = denials
        self.was_denied = False
        self.output_truncated = False
        self.logs_truncated = False

    def stdout(self, data: bytes) -> None:
        self._put_out(self._clean_stdout.feed(data))

    def stderr(self, data: bytes) -> None:
        self._put_err(self._clean_stderr.feed(data))

    def end(self) -> None:
        self._put_out(self._clean_stdout.end())
        self._put_err(self._clean_stderr.end())

    @property
    def output(self) -> bytes:
        return bytes(self._output)

    @property
    def tail(self) -> str:
        """Return the end of standard error as text, without bytes of a character cut in two."""
        whole = self._tail.lstrip(bytes(range(0x80, 0xC0))) if len(self._tail) > 3 else self._tail
        return whole.decode(errors="replace").replace("\0", "\ufffd").rstrip()

    def _put_out(self, data: bytes) -> None:
        room = self._max_output - len(self._output)
        self._output += data[:room]
        self.output_truncated |= len(data) > room
        self._log(data)

    def _put_err(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-STDERR_TAIL_BYTES:]
        self.was_denied |= self._denials.search(self._seam + data) is not None
        self._seam = (self._seam + data)[-_LONGEST_DENIAL:]
        self._log(data)

    def _log(self, data: bytes) -> None:
        kept = data[: self._log_left]
        self.logs_truncated |= len(data) > self._log_left
        self._log_left -= len(kept)
        if kept:
            self._recorder.log(kept)
