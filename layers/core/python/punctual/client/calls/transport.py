"""Convert requests to httpx arguments, and httpx results to outcomes, for both clients."""

import math
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from punctual.client.call_steps import Send
from punctual.client.errors import Misuse, Unexpected
from punctual.client.wire import SUCCESS_STATUSES, Answer, Failure, ResponseFile
from punctual.settings import PRODUCT_VERSION

DEFAULT_API_URL = "http://127.0.0.1:8080/v1"
MAX_API_ANSWER_BYTES = 128 * 1024 * 1024  # a page of 200 jobs with the longest payload and script
API_CONNECT_SECONDS = 5.0
# Shorter than the idle timeout of servers. A POST on a connection that the server just closed
# fails, and must not be repeated blindly.
API_IDLE_SECONDS = 3.0
MAX_API_CONNECTIONS = 100
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

_NOT_SENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_FINAL_ERRORS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)


class ApiTarget(NamedTuple):
    """The root URL of the API, and the token."""

    root: str
    token: str | None


def resolve_target(url: str | None, token: str | None, env: Mapping[str, str]) -> ApiTarget:
    """
    >>> resolve_target(None, None, {"PUNCTUAL_URL": "https://punctual.example/v1/"})
    ApiTarget(root='https://punctual.example/v1', token=None)
    """
    root = (url or env.get("PUNCTUAL_URL") or DEFAULT_API_URL).rstrip("/")
    parts = urlsplit(root)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misuse(
            f"{root!r} is not the address of an API. Use an address such as {DEFAULT_API_URL}."
        )
    chosen_token = env.get("PUNCTUAL_TOKEN") if token is None else token
    if token is None and not chosen_token:
        chosen_token = read_local_token(root, env, sys.platform)
    if chosen_token is not None and not (
        chosen_token.isascii() and chosen_token.isprintable() and " " not in chosen_token
    ):
        raise Misuse("The token has invalid characters. Copy it without a line break.")
    return ApiTarget(root, chosen_token or None)


def read_local_token(root: str, env: Mapping[str, str], platform: str) -> str | None:
    """Return the token of a node on this machine, or None.

    On Linux the node identifies the user of a local connection, so no token is needed.
    """
    if platform == "linux" or not is_loopback_url(root):
        return None
    try:
        return (Path(env.get("PUNCTUAL_DATA") or ".punctual") / "local-token").read_text().strip()
    except OSError:
        return None


def is_loopback_url(url: str) -> bool:
    """Return True for a URL of this machine.

    >>> is_loopback_url("http://localhost:8080/v1"), is_loopback_url("https://punctual.example")
    (True, False)
    """
    return urlsplit(url).hostname in LOOPBACK_HOSTS


def client_options(root: str, transport: Any) -> dict[str, Any]:
    """Return the options of the httpx client.

    Requests to this machine use no proxy, but still respect SSL_CERT_FILE.
    """
    is_local = is_loopback_url(root)
    is_https = urlsplit(root).scheme == "https"
    return {
        "transport": transport,
        "trust_env": not is_local,
        "verify": httpx.create_ssl_context() if is_local and is_https else True,
        "limits": httpx.Limits(
            max_connections=MAX_API_CONNECTIONS,
            max_keepalive_connections=MAX_API_CONNECTIONS,
            keepalive_expiry=API_IDLE_SECONDS,
        ),
        "headers": {"user-agent": f"punctual-python/{PRODUCT_VERSION}", "accept": "*/*"},
        "follow_redirects": False,
    }


def request_arguments(send: Send, target: ApiTarget) -> dict[str, Any]:
    """Return the arguments of httpx's `stream`."""
    request = send.request
    headers = dict(request.headers)
    if request.body is not None:
        headers["content-type"] = "application/json"
    if target.token is not None and request.with_token:
        headers["authorization"] = f"Bearer {target.token}"
    return {
        "method": request.method,
        "url": request.url(target.root),
        "content": request.body if request.file is None else request.file.pieces(),
        "headers": headers,
        "timeout": httpx.Timeout(
            send.timeout_seconds, connect=min(API_CONNECT_SECONDS, send.timeout_seconds)
        ),
    }


class ResponseBody:
    """A response body that arrives in pieces, with limits on size and time.

    The content of a successful answer goes to `file`, if the request names one, without a limit.
    """

    def __init__(
        self, steady_deadline: float, max_bytes: int, file: ResponseFile | None = None
    ) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._steady_deadline = steady_deadline
        self._max_bytes = max_bytes
        self._requested_file = file
        self._file: ResponseFile | None = None  # set while the content goes to it

    @contextmanager
    def receiving(self, response: httpx.Response) -> Iterator[None]:
        """Open the file for the content of a successful answer."""
        if self._requested_file is None or response.status_code not in SUCCESS_STATUSES:
            yield
            return
        self._file = self._requested_file
        try:
            self._file.begin()
            yield
        finally:
            self._file.end()

    def add(self, piece: bytes, steady: float) -> None:
        if self._file is not None:
            self._file.write(piece)
            return
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise Unexpected(f"The answer is longer than {self._max_bytes:,} bytes.")
        if steady > self._steady_deadline:
            raise httpx.ReadTimeout("the answer took too long")
        self._pieces.append(piece)

    def answer(self, response: httpx.Response) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, b"".join(self._pieces))

    def failure_of(self, error: Exception) -> Failure:
        """Return the failure. A stream with a part of the content cannot get it again."""
        failure = failure_of(error)
        if self._file is not None and not self._file.is_repeatable:
            return failure._replace(final=True)
        return failure


def body_of_response(send: Send, steady: float, max_bytes: int) -> ResponseBody:
    """Return the body of the response to a request that is sent at `steady`.

    A file may take longer than the timeout, which then limits each wait for the connection.
    """
    request = send.request
    has_file = request.file is not None or request.to is not None
    steady_deadline = math.inf if has_file else steady + send.timeout_seconds
    return ResponseBody(steady_deadline, max_bytes, request.to)


def failure_of(error: Exception) -> Failure:
    """Return the failure that an httpx error means for the request."""
    text = str(error) or type(error).__name__
    if isinstance(error, _FINAL_ERRORS):
        return Failure(text, sent=False, final=True)
    if isinstance(error, _NOT_SENT_ERRORS):
        return Failure(f"no connection ({text})", sent=False, final=_is_untrusted(error))
    summary = "no answer in time" if isinstance(error, httpx.TimeoutException) else "no answer"
    return Failure(f"{summary} ({text})", sent=True)


def _is_untrusted(error: BaseException | None) -> bool:
    """Return True if a certificate is not valid. A retry would fail again."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
