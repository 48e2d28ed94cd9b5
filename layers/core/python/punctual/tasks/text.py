"""Convert values to text: JSON, times, and bytes for headers and environment variables."""

import json
from datetime import UTC, datetime
from typing import Any

from punctual.tasks.contract import BadTask


def json_bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8. A value with lone surrogates is escaped to ASCII."""
    try:
        return _encode_json(value, ascii_only=False).encode()
    except UnicodeEncodeError:
        return _encode_json(value, ascii_only=True).encode()


def ascii_json(value: Any) -> str:
    """Return compact JSON in ASCII. Other characters are escaped."""
    return _encode_json(value, ascii_only=True)


def as_text(value: Any) -> str:
    """Return a string unchanged and any other value as JSON.

    >>> as_text("a"), as_text(3), as_text(True), as_text({"a": None})
    ('a', '3', 'true', '{"a":null}')
    """
    return value if isinstance(value, str) else _encode_json(value, ascii_only=False)


def time_text(at: datetime) -> str:
    """Return the time as `domain/timestamps.py` does, with the standard library alone.

    >>> time_text(datetime(2026, 12, 1, 10, 0, 0, 5999, tzinfo=UTC))
    '2026-12-01T10:00:00.005Z'
    """
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def encode_text(text: str, label: str) -> bytes:
    """Return the text in UTF-8. Raise BadTask for a NUL, which system calls and HTTP reject."""
    if "\0" in text:
        raise BadTask(f"{label} holds a NUL character")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadTask(f"{label} holds a character that is not valid Unicode") from None


def _encode_json(value: Any, *, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False)
