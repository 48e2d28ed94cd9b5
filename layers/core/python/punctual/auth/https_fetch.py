"""Fetch a document of an issuer over TLS, with a maximum length and time."""

import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, SOCK_STREAM, create_connection, getaddrinfo, socket
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from punctual.auth.issuer_config import is_safe_url
from punctual.domain.errors import Unavailable

FETCH_SECONDS = 2.0  # two documents must arrive before the authorizer runs out of time
MAX_DOCUMENT_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024


def fetch_document(address: str) -> bytes:
    """Return the document at `address`. Redirects are not followed."""
    if not is_safe_url(address):
        raise Unavailable(f"The issuer's address {address[:200]!r} must be an https URL.")
    parts = urlsplit(address)
    host = parts.hostname or ""
    tls_context = ssl.create_default_context() if parts.scheme == "https" else None
    connection = _open_connection(host, parts.port, tls_context)
    try:
        sock, seconds = _connect(host, connection.port)
        connection.sock = sock if tls_context is None else _wrap_in_tls(sock, host, tls_context)
        return _request_document(connection, parts, address, seconds)
    except (OSError, HTTPException, ValueError) as error:
        error_name = type(error).__name__
        raise Unavailable(f"The issuer did not answer at {address}: {error_name}.") from error
    finally:
        connection.close()


def _open_connection(
    host: str, port: int | None, tls_context: ssl.SSLContext | None
) -> HTTPConnection:
    if tls_context is not None:
        return HTTPSConnection(host, port, context=tls_context)
    return HTTPConnection(host, port)


def _connect(host: str, port: int) -> tuple[socket, float]:
    """Return a socket to the first address that answers, and the seconds that remain.

    Each address may take half of the remaining time, so all of them stay within `FETCH_SECONDS`.
    """
    failure, seconds = OSError("the host has no address"), FETCH_SECONDS
    for *_, address in getaddrinfo(host, port, type=SOCK_STREAM):
        try:
            sock = create_connection((str(address[0]), port), seconds / 2)
        except TimeoutError as error:
            failure, seconds = error, seconds / 2
        except OSError as error:  # fails at once, for example without a route to IPv6 addresses
            failure = error
        else:
            sock.settimeout(FETCH_SECONDS)
            return sock, seconds / 2
    raise failure


def _wrap_in_tls(sock: socket, host: str, tls_context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return a TLS socket without the handshake, so that the time limit covers the handshake."""
    try:
        return tls_context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise


def _request_document(
    connection: HTTPConnection, parts: SplitResult, address: str, seconds: float
) -> bytes:
    # A socket timeout limits each read. This timer limits all of them together.
    timer = Timer(seconds, _shut_down, (connection.sock,))
    timer.daemon = True
    timer.start()
    try:
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("GET", path, headers={"accept": "application/json"})
        return _read_body(connection.getresponse(), address)
    finally:
        timer.cancel()


def _read_body(response: HTTPResponse, address: str) -> bytes:
    if response.status != 200:
        raise Unavailable(f"The issuer answered {response.status} at {address}.")
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(_READ_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_DOCUMENT_BYTES:
            raise Unavailable(
                f"The issuer's answer at {address} is longer than {MAX_DOCUMENT_BYTES:,} bytes."
            )
    return b"".join(chunks)


def _shut_down(sock: socket) -> None:
    with suppress(OSError):  # the connection is closed already
        sock.shutdown(SHUT_RDWR)
