"""Read the headers that make a call safe to repeat: Idempotency-Key and If-Match."""

import re
from typing import NamedTuple

from punctual.domain.errors import FieldError, Invalid
from punctual.web.http.request import Request

MAX_IDEMPOTENCY_KEY_CHARACTERS = 255
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_ETAG_LIST = re.compile(r'\s*(?:(W/)?"([^"]*)"\s*(?:,\s*|$))+')
_ETAG = re.compile(r'(W/)?"([^"]*)"')


class VersionMatch(NamedTuple):
    """The versions that If-Match allows. A weak tag never matches."""

    editions: frozenset[int]


def idempotency_key(request: Request) -> str | None:
    key = request.header(b"idempotency-key")
    if key is None:
        return None
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        text = f"must be 1 to {MAX_IDEMPOTENCY_KEY_CHARACTERS} printable ASCII characters"
        raise Invalid.of(FieldError("Idempotency-Key", text))
    return key


def if_match(request: Request) -> VersionMatch | None:
    """Return the versions that If-Match allows, or None if any version will do."""
    value = request.header(b"if-match")
    if value is None or value.strip() == "*":
        return None
    if not _ETAG_LIST.fullmatch(value):
        text = 'must be * or versions in quotes, such as "3"'
        raise Invalid.of(FieldError("If-Match", text))
    strong = [text for weak, text in _ETAG.findall(value) if not weak]
    # Only text that `etag` writes can match: ASCII digits without leading zeros.
    versions = [int(text) for text in strong if re.fullmatch(r"[1-9][0-9]{0,17}", text)]
    return VersionMatch(frozenset(versions))


def etag(edition: int) -> str:
    return f'"{edition}"'
