"""One document of an issuer's: over TLS, of bounded length, in bounded time."""

import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, SOCK_STREAM, create_connection, getaddrinfo, socket
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from punctual.auth.issuer_config import is_safe_url
from punctual.domain.errors import Unavailable

FETCH_SECONDS = 2.0  # twice that, for two documents, is less than a call may wait to be let in
MAX_DOCUMENT_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024


def fetch_document(address: str) -> bytes:
    """Redirects are not followed: an issuer's addresses are what they say."""
    if not is_safe_url(address):
        raise Unavailable(f"The issuer's address {address[:200]!r} is not an https one.")
    parts = urlsplit(address)
    host = parts.hostname or ""
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    connection = _open_connection(host, parts.port, secure)
    try:
        sock, left = _connect(host, connection.port)
        connection.sock = sock if secure is None else _wrap_in_tls(sock, host, secure)
        return _request_document(connection, parts, address, left)
    except (OSError, HTTPException, ValueError) as error:
        kind = type(error).__name__
        raise Unavailable(f"The issuer did not answer at {address}: {kind}.") from error
    finally:
        connection.close()


def _open_connection(host: str, port: int | None, secure: ssl.SSLContext | None) -> HTTPConnection:
    if secure is not None:
        return HTTPSConnection(host, port, context=secure)
    return HTTPConnection(host, port)


def _connect(host: str, port: int) -> tuple[socket, float]:
    """To the first of its addresses that answers, and the seconds that are surely left: each may
    take half of what those before it left, so all of them together take no more than `SECONDS`."""
    failure, left = OSError("it has no address"), FETCH_SECONDS
    for *_, at in getaddrinfo(host, port, type=SOCK_STREAM):
        try:
            sock = create_connection((str(at[0]), port), left / 2)
        except TimeoutError as error:
            failure, left = error, left / 2
        except OSError as error:  # at once, as where there is no way to any IPv6 address
            failure = error
        else:
            sock.settimeout(FETCH_SECONDS)
            return sock, left / 2
    raise failure


def _wrap_in_tls(sock: socket, host: str, secure: ssl.SSLContext) -> ssl.SSLSocket:
    """Its handshake is yet to come: it takes part of the same time."""
    try:
        return secure.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise


def _request_document(
    connection: HTTPConnection, parts: SplitResult, address: str, seconds: float
) -> bytes:
    # A timeout counts from byte to byte: all of them together are cut off here.
    cut = Timer(seconds, _shut_down, (connection.sock,))
    cut.daemon = True
    cut.start()
    try:
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("GET", path, headers={"accept": "application/json"})
        return _read_body(connection.getresponse(), address)
    finally:
        cut.cancel()


def _read_body(response: HTTPResponse, address: str) -> bytes:
    if response.status != 200:
        raise Unavailable(f"The issuer answered {response.status} at {address}.")
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_DOCUMENT_BYTES:
            raise Unavailable(
                f"The issuer's answer at {address} is longer than {MAX_DOCUMENT_BYTES:,} bytes."
            )
    return b"".join(pieces)


def _shut_down(sock: socket) -> None:
    with suppress(OSError):  # it has ended by itself
        sock.shutdown(SHUT_RDWR)
