"""One document of an issuer's: over TLS, of bounded length, in bounded time."""

import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, SOCK_STREAM, create_connection, getaddrinfo, socket
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from punctual.auth.issuer_config import is_safe
from punctual.domain.errors import Unavailable

SECONDS = 2.0  # twice that, for two documents, is less than a call may wait to be let in
MOST = 256 * 1024
_PIECE = 64 * 1024


def fetched(address: str) -> bytes:
    """Redirects are not followed: an issuer's addresses are what they say."""
    if not is_safe(address):
        raise Unavailable(f"The issuer's address {address[:200]!r} is not an https one.")
    parts = urlsplit(address)
    host = parts.hostname or ""
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    connection = _connection(host, parts.port, secure)
    try:
        sock, left = _connected(host, connection.port)
        connection.sock = sock if secure is None else _wrapped(sock, host, secure)
        return _asked(connection, parts, address, left)
    except (OSError, HTTPException, ValueError) as error:
        kind = type(error).__name__
        raise Unavailable(f"The issuer did not answer at {address}: {kind}.") from error
    finally:
        connection.close()


def _connection(host: str, port: int | None, secure: ssl.SSLContext | None) -> HTTPConnection:
    if secure is not None:
        return HTTPSConnection(host, port, context=secure)
    return HTTPConnection(host, port)


def _connected(host: str, port: int) -> tuple[socket, float]:
    """To the first of its addresses that answers, and the seconds that are surely left: each may
    take half of what those before it left, so all of them together take no more than `SECONDS`."""
    failure, left = OSError("it has no address"), SECONDS
    for *_, at in getaddrinfo(host, port, type=SOCK_STREAM):
        try:
            sock = create_connection((str(at[0]), port), left / 2)
        except TimeoutError as error:
            failure, left = error, left / 2
        except OSError as error:  # at once, as where there is no way to any IPv6 address
            failure = error
        else:
            sock.settimeout(SECONDS)
            return sock, left / 2
    raise failure


def _wrapped(sock: socket, host: str, secure: ssl.SSLContext) -> ssl.SSLSocket:
    """Its handshake is yet to come: it takes part of the same time."""
    try:
        return secure.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise


def _asked(connection: HTTPConnection, parts: SplitResult, address: str, seconds: float) -> bytes:
    # A timeout counts from byte to byte: all of them together are cut off here.
    cut = Timer(seconds, _cut, (connection.sock,))
    cut.daemon = True
    cut.start()
    try:
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("GET", path, headers={"accept": "application/json"})
        return _body(connection.getresponse(), address)
    finally:
        cut.cancel()


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
