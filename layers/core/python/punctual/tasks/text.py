"""Values as text: JSON, moments, and what may stand in a header or a variable."""

import json
from datetime import UTC, datetime
from typing import Any

from punctual.tasks.contract import BadTask


def json_bytes(value: Any) -> bytes:
    """Compact JSON; characters stay as they are unless UTF-8 has no place for one."""
    try:
        return _json(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        return _json(value, ascii_only=True).encode()


def ascii_json(value: Any) -> str:
    """Compact JSON, every other character written as its number."""
    return _json(value, ascii_only=True)


def as_text(value: Any) -> str:
    """A string as it is, anything else as JSON.

    >>> as_text("a"), as_text(3), as_text(True), as_text({"a": None})
    ('a', '3', 'true', '{"a":null}')
    """
    return value if isinstance(value, str) else _json(value, ascii_only=False)


def encoded(text: str, what: str) -> bytes:
    """UTF-8 without NUL, as the system's own calls and HTTP demand it."""
    if "\0" in text:
        raise BadTask(f"{what} holds a NUL character")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadTask(f"{what} holds a character that is no valid Unicode") from None


def moment(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds.

    >>> moment(datetime(2026, 12, 1, 10, 0, 0, 5999, tzinfo=UTC))
    '2026-12-01T10:00:00.005Z'
    """
    utc = at.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


def _json(value: Any, *, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False)
