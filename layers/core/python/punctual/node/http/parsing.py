"""Reads headers, path and body of a request within limits, before any other code sees them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from punctual.web.http.guards import CLOSE_HEADER, body_too_large
from punctual.web.http.problems import RequestRejected

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
RawHeaders = Iterable[tuple[bytes, bytes]]

API_ROOT = "/v1"
MAX_REQUEST_HEADERS = 100
MAX_HEAD_BYTES = 64 * 1024
MAX_TARGET_BYTES = 8 * 1024
_UNREPEATABLE_HEADERS = (
    b"host",
    b"content-length",
    b"content-type",
    b"idempotency-key",
    b"authorization",
)


class ClientDisconnected(Exception):
    """The client hung up before its request was complete."""


def parse_headers(raw_headers: RawHeaders) -> Mapping[bytes, bytes]:
    pairs = list(raw_headers)
    headers = dict(pairs)
    size = sum(map(len, headers.values())) + sum(map(len, headers))
    if len(pairs) > MAX_REQUEST_HEADERS or size > MAX_HEAD_BYTES:
        raise head_too_large()
    return headers if len(headers) == len(pairs) else _join_repeated(pairs)


def head_too_large() -> RequestRejected:
    text = f"Send at most {MAX_REQUEST_HEADERS} headers, and a head of {MAX_HEAD_BYTES:,} bytes."
    return RequestRejected("HEADERS_TOO_LARGE", text, CLOSE_HEADER)


def _join_repeated(pairs: list[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """Return headers with repeated values joined to a list.

    Headers of `_UNREPEATABLE_HEADERS` must not be repeated.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in headers and name in _UNREPEATABLE_HEADERS:
            raise RequestRejected(
                "BAD_REQUEST", f"The header {name.decode('latin-1')} came twice.", CLOSE_HEADER
            )
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def parse_path(raw_path: bytes, query: bytes) -> str:
    """Return the path below the root, still percent-encoded.

    An encoded slash in an id separates nothing.
    """
    if len(raw_path) + len(query) > MAX_TARGET_BYTES:
        raise RequestRejected(
            "URI_TOO_LONG", f"The address is longer than {MAX_TARGET_BYTES:,} bytes.", CLOSE_HEADER
        )
    path = raw_path.partition(b"?")[0].decode("latin-1")
    if path.startswith(API_ROOT) and path[len(API_ROOT) : len(API_ROOT) + 1] in ("/", ""):
        return path[len(API_ROOT) :] or "/"
    text = f"There is nothing at this address: all addresses begin with {API_ROOT}/."
    raise RequestRejected("NOT_FOUND", text)


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body", False) and not chunks:
            if len(chunk) > max_bytes:
                raise body_too_large(max_bytes)
            return chunk
        size += len(chunk)
        if size > max_bytes:
            raise body_too_large(max_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
