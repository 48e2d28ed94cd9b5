"""Reject a request by its headers before its body is read, and read its conditions.

The conditions are Idempotency-Key and If-Match. They make a call safe to repeat.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from punctual.domain.errors import FieldError, Invalid
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE
from punctual.web.contract import CLAIM_PATHS
from punctual.web.http.json_body import MAX_BATCH_BODY_BYTES, MAX_BODY_BYTES
from punctual.web.http.problems import RequestRejected
from punctual.web.http.request import Header, Request

Headers = Mapping[bytes, bytes]

BATCH_PATH = "/jobs/batch"
LONG_BODY_PATHS = CLAIM_PATHS | {BATCH_PATH}
CLOSE_HEADER: Header = ("connection", "close")
_JSON_TYPE = re.compile(rb'application/json\s*(?:;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE)
_LOOPBACK_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_ALLOWED_FETCH_SITES = (b"same-origin", b"none")
MAX_IDEMPOTENCY_KEY_CHARACTERS = 255
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_ETAG_LIST = re.compile(r'\s*(?:(W/)?"([^"]*)"\s*(?:,\s*|$))+')
_ETAG = re.compile(r'(W/)?"([^"]*)"')


def check_loopback(headers: Headers) -> None:
    """Raise unless the call names a loopback host and comes from no other web site.

    A page of another site can make a browser call this server under any host name.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not _LOOPBACK_HOST.fullmatch(host):
        text = "This server answers on loopback only: call it as 127.0.0.1 or localhost."
        raise RequestRejected("MISDIRECTED", text)
    origin = headers.get(b"origin")
    if origin is not None and not _is_same_origin(origin.decode("latin-1"), host):
        raise RequestRejected("FORBIDDEN", "Pages of other origins may not call this server.")
    site = headers.get(b"sec-fetch-site")
    if site is not None and site.strip().lower() not in _ALLOWED_FETCH_SITES:
        raise RequestRejected("FORBIDDEN", "Pages of other sites may not call this server.")


def check_body_headers(path: str, headers: Headers) -> int:
    """Check the announced type and length of the body, and return its maximum length."""
    max_bytes = MAX_BATCH_BODY_BYTES if path in LONG_BODY_PATHS else MAX_BODY_BYTES
    announced = headers.get(b"content-length")
    if announced is not None:
        if not announced.isdigit() or len(announced) > 18:
            raise RequestRejected("BAD_REQUEST", "Content-Length must be a number.", CLOSE_HEADER)
        length = int(announced)
        if length > max_bytes:
            raise body_too_large(max_bytes)
        if not length:
            return max_bytes
    elif b"transfer-encoding" not in headers:
        return max_bytes
    check_content_type(headers)
    return max_bytes


def check_content_type(headers: Headers) -> None:
    content_type = headers.get(b"content-type", b"")
    if content_type != b"application/json" and not _JSON_TYPE.fullmatch(content_type):
        text = "Send the body as application/json, in UTF-8."
        raise RequestRejected("UNSUPPORTED_MEDIA_TYPE", text, ("accept", JSON_MEDIA_TYPE))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRejected("UNSUPPORTED_MEDIA_TYPE", "Send the body without a content encoding.")


def body_too_large(max_bytes: int) -> RequestRejected:
    return RequestRejected(
        "TOO_LARGE", f"The body is longer than {max_bytes:,} bytes.", CLOSE_HEADER
    )


def check_accept(headers: Headers, media_type: str) -> None:
    """Raise unless the Accept header allows the media type of the answer.

    Errors are problem documents with any Accept header.
    """
    accept = headers.get(b"accept")
    if accept is None or accept == b"*/*" or accept == b"application/json" == media_type.encode():
        return
    family = media_type.split("/")[0]
    best: tuple[int, float] = (-1, 0.0)
    for part in accept.decode("latin-1").lower().split(","):
        accepted, *parameters = (piece.strip() for piece in part.split(";"))
        rank = {"*/*": 0, f"{family}/*": 1, media_type: 2}.get(accepted, -1)
        best = max(best, (rank, _quality(parameters))) if rank >= 0 else best
    if best[0] < 0 or best[1] <= 0:
        raise RequestRejected("NOT_ACCEPTABLE", f"This call answers {media_type} only.")


def _is_same_origin(origin: str, host: str) -> bool:
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if re.fullmatch(r"[01](?:\.[0-9]{0,3})?", value.strip()) else 0.0
    return 1.0


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
