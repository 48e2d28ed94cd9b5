"""Encodings for sort keys: times, numbers and tuples of text keep their order as text.

Escaping turns `$` and every lower character into `$` and two hex digits. So the separator `#` sorts
before every character of an escaped part. Keys sort as the tuples of their parts, and differ if the
tuples differ.
"""

import re
from datetime import UTC, datetime

FIRST_CHAR, LAST_CHAR = "$", "\U0010ffff"  # lowest and highest character of an escaped part

_RESERVED_CHARACTER = re.compile(r"[\x00-$]")
_ESCAPED_CHARACTER = re.compile(r"\$([0-9a-f]{2})")


def escape(part: str) -> str:
    """Return the part with `$` and every lower character escaped.

    >>> escape("a#b c$")
    'a$23b$20c$24'
    """
    return _RESERVED_CHARACTER.sub(lambda match: f"${ord(match.group()):02x}", part)


def unescape(part: str) -> str:
    """Return the text of an escaped part.

    >>> unescape("a$23b$20c$24")
    'a#b c$'
    """
    return _ESCAPED_CHARACTER.sub(lambda match: chr(int(match.group(1), 16)), part)


def join_parts(*parts: str) -> str:
    """Return the escaped parts, joined with `#`.

    >>> join_parts("a#b", "c") == join_parts("a", "b#c")
    False
    """
    return "#".join(map(escape, parts))


def split_parts(key: str) -> list[str]:
    """Return the unescaped parts of a joined key.

    >>> split_parts(join_parts("a#b", "", "c"))
    ['a#b', '', 'c']
    """
    parts = key.split("#")
    return [unescape(part) for part in parts] if "$" in key else parts


def time_key(at: datetime) -> str:
    """Return the time as UTC text of fixed width, so that the text sorts as time does.

    >>> time_key(datetime(2026, 12, 1, 10, tzinfo=UTC))
    '2026-12-01T10:00:00.000000Z'
    """
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time_key(text: str) -> datetime:
    """Return the time that `time_key` encoded.

    >>> parse_time_key("2026-12-01T10:00:00.000001Z")
    datetime.datetime(2026, 12, 1, 10, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return datetime.fromisoformat(text)


def parse_optional_time_key(text: str | None) -> datetime | None:
    return None if text is None else parse_time_key(text)


def number_key(value: int) -> str:
    """Return the number as text of fixed width. Negative numbers sort before all others.

    >>> number_key(7), number_key(-1) < number_key(0)
    ('000000000007', True)
    """
    return f"{value:012d}"
