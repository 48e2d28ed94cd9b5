"""One document of an issuer's: over TLS, of bounded length, in bounded time."""

import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from punctual.access.trust import is_safe
from punctual.domain.errors import Unavailable

SECONDS = 2.0
MOST = 256 * 1024
_PIECE = 64 * 1024


def fetched(address: str) -> bytes:
    """Redirects are not followed: an issuer's addresses are what they say."""
    if not is_safe(address):
        raise Unavailable(f"The issuer's address {address[:200]!r} is not an https one.")
    parts = urlsplit(address)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port)
    try:
        connection.connect()
        return _asked(connection, parts, address)
    except (OSError, HTTPException, ValueError) as error:
        kind = type(error).__name__
        raise Unavailable(f"The issuer did not answer at {address}: {kind}.") from error
    finally:
        connection.close()


def _asked(connection: HTTPConnection, parts: SplitResult, address: str) -> bytes:
    # A timeout counts from byte to byte: all of them together are cut off here.
    cut = Timer(SECONDS, _cut, (connection.sock,))
    cut.daemon = True
    cut.start()
    try:
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("GET", path, headers={"accept": "application/json"})
        return _body(connection.getresponse(), address)
    finally:
        cut.cancel()


def _connection(scheme: str, host: str, port: int | None) -> HTTPConnection:
    if scheme == "https":
        return HTTPSConnection(host, port, timeout=SECONDS, context=ssl.create_default_context())
    return HTTPConnection(host, port, timeout=SECONDS)


def _body(response: HTTPResponse, address: str) -> bytes:
    if response.status != 200:
        raise Unavailable(f"The issuer answered {response.status} at {address}.")
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > MOST:
            raise Unavailable(f"The issuer's answer at {address} is longer than {MOST:,} bytes.")
    return b"".join(pieces)


def _cut(sock: socket) -> None:
    with suppress(OSError):  # it has ended by itself
        sock.shutdown(SHUT_RDWR)
