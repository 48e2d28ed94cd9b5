"""Reads headers, path and body of a request within limits, before any other code sees them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from punctual.web.http.guards import CLOSE, body_too_large
from punctual.web.http.problems import RequestRejected

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
RawHeaders = Iterable[tuple[bytes, bytes]]

ROOT = "/v1"
MAX_HEADERS = 100
MAX_HEAD = 64 * 1024
MAX_TARGET = 8 * 1024
_ONCE = (b"host", b"content-length", b"content-type", b"idempotency-key", b"authorization")


class Gone(Exception):
    """The client hung up before its request was complete."""


def headers_of(raw: RawHeaders) -> Mapping[bytes, bytes]:
    pairs = list(raw)
    headers = dict(pairs)
    size = sum(map(len, headers.values())) + sum(map(len, headers))
    if len(pairs) > MAX_HEADERS or size > MAX_HEAD:
        raise too_large_head()
    return headers if len(headers) == len(pairs) else _joined(pairs)


def too_large_head() -> RequestRejected:
    text = f"Send at most {MAX_HEADERS} headers, and a head of {MAX_HEAD:,} bytes."
    return RequestRejected("HEADERS_TOO_LARGE", text, CLOSE)


def _joined(pairs: list[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """Return headers with repeated values joined to a list.

    Headers of `_ONCE` must not be repeated.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in headers and name in _ONCE:
            raise RequestRejected(
                "BAD_REQUEST", f"The header {name.decode('latin-1')} came twice.", CLOSE
            )
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def path_of(raw: bytes, query: bytes) -> str:
    """Return the path below the root, still percent-encoded.

    An encoded slash in an id separates nothing.
    """
    if len(raw) + len(query) > MAX_TARGET:
        raise RequestRejected(
            "URI_TOO_LONG", f"The address is longer than {MAX_TARGET:,} bytes.", CLOSE
        )
    path = raw.partition(b"?")[0].decode("latin-1")
    if path.startswith(ROOT) and path[len(ROOT) : len(ROOT) + 1] in ("/", ""):
        return path[len(ROOT) :] or "/"
    text = f"There is nothing at this address: all addresses begin with {ROOT}/."
    raise RequestRejected("NOT_FOUND", text)


async def body_of(receive: Receive, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body", False) and not chunks:
            if len(chunk) > most:
                raise body_too_large(most)
            return chunk
        size += len(chunk)
        if size > most:
            raise body_too_large(most)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
