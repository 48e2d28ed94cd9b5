"""Capture the output, the log and the end of standard error of a script, within limits."""

import re
from collections.abc import Callable

from punctual.tasks.contract import Recorder
from punctual.tasks.limits import MAX_LOG_BYTES, MAX_OUTPUT_BYTES, STDERR_TAIL_BYTES
from punctual.tasks.redaction import Redactor

_NO_DENIALS = re.compile(rb"(?!)")
MAX_DENIAL_BYTES = 40


class Capture:
    """Redacts each stream separately, then merges both in the log.

    The output stays in memory, or `keep_output` receives it piece by piece.
    `was_denied` is true if one of `denials` matched anywhere in standard error.
    """

    def __init__(
        self,
        recorder: Recorder,
        redactor: Redactor,
        max_output: int = MAX_OUTPUT_BYTES,
        max_log: int = MAX_LOG_BYTES,
        denials: re.Pattern[bytes] = _NO_DENIALS,
        keep_output: Callable[[bytes], object] | None = None,
    ) -> None:
        self._recorder = recorder
        self._clean_stdout = redactor.stream()
        self._clean_stderr = redactor.stream()
        self._free_output_bytes = max_output
        self._free_log_bytes = max_log
        self._output = bytearray()
        self._keep_output = keep_output or self._output.extend
        self._tail = b""
        self._stderr_overlap = b""
        self._denials = denials
        self.was_denied = False
        self.output_truncated = False
        self.logs_truncated = False

    def stdout(self, data: bytes) -> None:
        self._put_stdout(self._clean_stdout.feed(data))

    def stderr(self, data: bytes) -> None:
        self._put_stderr(self._clean_stderr.feed(data))

    def end(self) -> None:
        self._put_stdout(self._clean_stdout.flush())
        self._put_stderr(self._clean_stderr.flush())

    @property
    def output(self) -> bytes:
        return bytes(self._output)

    @property
    def tail(self) -> str:
        """Return the end of standard error as text, without bytes of a character cut in two."""
        aligned = self._tail.lstrip(bytes(range(0x80, 0xC0))) if len(self._tail) > 3 else self._tail
        return aligned.decode(errors="replace").replace("\0", "\ufffd").rstrip()

    def _put_stdout(self, data: bytes) -> None:
        kept = data[: self._free_output_bytes]
        self._free_output_bytes -= len(kept)
        self.output_truncated |= len(data) > len(kept)
        if kept:
            self._keep_output(kept)
        self._log(data)

    def _put_stderr(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-STDERR_TAIL_BYTES:]
        self.was_denied |= self._denials.search(self._stderr_overlap + data) is not None
        self._stderr_overlap = (self._stderr_overlap + data)[-MAX_DENIAL_BYTES:]
        self._log(data)

    def _log(self, data: bytes) -> None:
        logged = data[: self._free_log_bytes]
        self.logs_truncated |= len(data) > self._free_log_bytes
        self._free_log_bytes -= len(logged)
        if logged:
            self._recorder.log(logged)
