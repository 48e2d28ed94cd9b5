"""HTTP calls with a deadline, by the standard library alone."""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
MAX_CALL_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_SECONDS = 5.0
TRANSFER_BLOCK_BYTES = 256 * 1024
HTTP_OK, HTTP_REDIRECT = 200, 300
_SCHEMES = ("http", "https")


class CallFailed(Exception):
    """A call got no complete answer in time. The server may have acted on it."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. A body that is a file needs its size."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] = b""
    body_bytes: int = 0

    @property
    def size(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body_bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return HTTP_OK <= self.status < HTTP_REDIRECT


class HttpClient:
    """Opens a connection for each call. It follows no redirect and uses no proxy."""

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def call(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """Return the answer. Raise CallFailed if it is not complete after `seconds`.

        The call has a thread of its own, because name lookups have no deadline.
        """
        connection = self._connection(request.url, seconds)

        def exchange() -> HttpAnswer:
            # An answer that ends with its connection is not closed by the connection.
            with _exchange(connection, request) as response:
                body = response.read(MAX_CALL_ANSWER_BYTES + 1)
                if len(body) > MAX_CALL_ANSWER_BYTES:
                    raise CallFailed("The answer is too large")
                return HttpAnswer(response.status, _header_fields(response), body)

        try:
            return _within(seconds, connection, exchange)
        finally:
            connection.close()

    def download(
        self, url: str, on_block: Callable[[bytes], None], seconds: float = CONNECT_SECONDS
    ) -> int:
        """Pass each block of a large answer to `on_block`, and return the status of the answer.

        Each wait for a block has a deadline. An exception of `on_block` ends the download.
        """
        connection = self._connection(url, seconds)
        request = HttpRequest("GET", url)
        try:
            with _within(seconds, connection, lambda: _exchange(connection, request)) as response:
                if HTTP_OK <= response.status < HTTP_REDIRECT:
                    while data := response.read1(TRANSFER_BLOCK_BYTES):
                        on_block(data)
                return response.status
        except (OSError, http.client.HTTPException) as error:
            raise CallFailed(_text_of(error)) from error
        finally:
            connection.close()

    def _connection(self, url: str, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise CallFailed("The address of a call must begin with https://")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname,
                parts.port,
                timeout=seconds,
                context=self._tls,
                blocksize=TRANSFER_BLOCK_BYTES,
            )
        return http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=seconds, blocksize=TRANSFER_BLOCK_BYTES
        )


def _exchange(
    connection: http.client.HTTPConnection, request: HttpRequest
) -> http.client.HTTPResponse:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = dict(request.headers)
    if request.method != "GET":
        headers["Content-Length"] = str(request.size)
    body = request.body if request.size or not isinstance(request.body, bytes) else None
    connection.request(request.method, target, body, headers)
    return connection.getresponse()


def _header_fields(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _within(seconds: float, connection: http.client.HTTPConnection, action: Callable[[], T]) -> T:
    """Return the result of an action. After `seconds`, end its connection and raise CallFailed."""
    results: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(action())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="call", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a script may use up the processes of its user for a moment
        raise CallFailed("No thread could be started for the call") from None
    thread.join(seconds)
    if thread.is_alive():
        _cut(connection)
        raise CallFailed(f"No answer after {seconds:g} s")
    if not errors:
        return results[0]
    error = errors[0]
    if isinstance(error, OSError | http.client.HTTPException):
        raise CallFailed(_text_of(error)) from error
    raise error


def _cut(connection: http.client.HTTPConnection) -> None:
    """Shut down a connection that another thread uses, so that its call fails."""
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _text_of(error: Exception) -> str:
    # Omit the error's text of HTTP errors: it may quote a signed address.
    text = error.strerror if isinstance(error, OSError) else ""
    return text or type(error).__name__
