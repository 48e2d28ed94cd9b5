"""Log lines are events with a name and fields: readable on a terminal, JSON elsewhere."""

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TextIO

import msgspec

_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventLog:
    """Writes one line for each event."""

    def __init__(self, stream: TextIO, clock: Callable[[], datetime], pretty: bool) -> None:
        self._stream = stream
        self._clock = clock
        self._pretty = pretty

    def __call__(self, event: str, /, **fields: Any) -> None:
        now = self._clock()
        fields = {name: value for name, value in fields.items() if value != ""}
        if self._pretty:
            field_text = "  ".join(f"{name}={_printable(value)}" for name, value in fields.items())
            line = (
                f"{now.astimezone():%H:%M:%S} {event.replace('_', ' '):<22} {field_text}".rstrip()
            )
        else:
            record = {"at": now, "event": event, **fields}
            line = msgspec.json.encode(record, enc_hook=str).decode()
        self._stream.write(line + "\n")
        self._stream.flush()


class _Forward(logging.Handler):
    """Forwards the records of library and task loggers to the event log."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        self._log(record.getMessage(), level=record.levelname, **fields)


def set_up_logging(clock: Callable[[], datetime], stream: TextIO = sys.stderr) -> EventLog:
    log = EventLog(stream, clock, stream.isatty())
    root = logging.getLogger()
    root.handlers = [_Forward(log)]
    root.setLevel(logging.WARNING)
    return log


def _printable(value: Any) -> str:
    """Return a value on one line without control characters. A script may have printed any text."""
    if isinstance(value, float):
        return f"{value:.3f}"
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in str(value)
    )
