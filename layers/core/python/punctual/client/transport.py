"""Convert requests to httpx arguments, and httpx results to outcomes, for both clients."""

import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from punctual.client.call_steps import Send
from punctual.client.errors import Misuse, Unexpected
from punctual.client.wire import Answer, Failure
from punctual.settings import VERSION

DEFAULT_URL = "http://127.0.0.1:8080/v1"
MOST_BYTES = 128 * 1024 * 1024  # a page of 200 jobs with the longest payload and script
CONNECT_SECONDS = 5.0
# Shorter than the idle timeout of servers. A POST on a connection that the server just closed
# fails, and must not be repeated blindly.
IDLE_SECONDS = 3.0
CONNECTIONS = 100

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NEVER_SENT = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)


class Place(NamedTuple):
    """The root URL of the API, and the token."""

    root: str
    token: str | None


def place(url: str | None, token: str | None, env: Mapping[str, str]) -> Place:
    """
    >>> place(None, None, {"PUNCTUAL_URL": "https://punctual.example/v1/"})
    Place(root='https://punctual.example/v1', token=None)
    """
    root = (url or env.get("PUNCTUAL_URL") or DEFAULT_URL).rstrip("/")
    parts = urlsplit(root)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misuse(f"{root!r} is no address of an API: it looks like {DEFAULT_URL}.")
    given = env.get("PUNCTUAL_TOKEN") if token is None else token
    if token is None and not given:
        given = token_of_node_here(root, env, sys.platform)
    if given is not None and not (given.isascii() and given.isprintable() and " " not in given):
        raise Misuse("The token holds characters that no token has: was a line break copied?")
    return Place(root, given or None)


def token_of_node_here(root: str, env: Mapping[str, str], platform: str) -> str | None:
    """Return the token of a node on this machine, or None.

    On Linux the node identifies the user of a local connection, so no token is needed.
    """
    if platform == "linux" or urlsplit(root).hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    try:
        return (Path(env.get("PUNCTUAL_DATA") or ".punctual") / "local-token").read_text().strip()
    except OSError:
        return None


def options(root: str, transport: Any) -> dict[str, Any]:
    """Return the options of the httpx client.

    Requests to this machine use no proxy, but still respect SSL_CERT_FILE.
    """
    parts = urlsplit(root)
    here = parts.hostname in ("127.0.0.1", "localhost", "::1")
    return {
        "transport": transport,
        "trust_env": not here,
        "verify": httpx.create_ssl_context() if here and parts.scheme == "https" else True,
        "limits": httpx.Limits(
            max_connections=CONNECTIONS,
            max_keepalive_connections=CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
        ),
        "headers": {"user-agent": f"punctual-python/{VERSION}", "accept": "*/*"},
        "follow_redirects": False,
    }


def arguments(send: Send, at: Place) -> dict[str, Any]:
    """Return the arguments of httpx's `stream`."""
    request = send.request
    headers = dict(request.headers)
    if request.body is not None:
        headers["content-type"] = "application/json"
    if at.token is not None and request.with_token:
        headers["authorization"] = f"Bearer {at.token}"
    return {
        "method": request.method,
        "url": request.url(at.root),
        "content": request.body,
        "headers": headers,
        "timeout": httpx.Timeout(send.seconds, connect=min(CONNECT_SECONDS, send.seconds)),
    }


class Gathered:
    """A response body that arrives in pieces, with limits on size and time."""

    def __init__(self, until: float, most: int) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._until = until
        self._most = most

    def add(self, piece: bytes, now: float) -> None:
        self._size += len(piece)
        if self._size > self._most:
            raise Unexpected(f"The answer is longer than {self._most:,} bytes.")
        if now > self._until:
            raise httpx.ReadTimeout("the answer took too long")
        self._pieces.append(piece)

    def answer(self, response: httpx.Response) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, b"".join(self._pieces))


def failure(error: Exception) -> Failure:
    """Return the failure that an httpx error means for the request."""
    text = str(error) or type(error).__name__
    if isinstance(error, _NEVER_SENT):
        return Failure(text, sent=False, final=True)
    if isinstance(error, _NOT_SENT):
        return Failure(f"no connection ({text})", sent=False, final=_is_untrusted(error))
    kind = "no answer in time" if isinstance(error, httpx.TimeoutException) else "no answer"
    return Failure(f"{kind} ({text})", sent=True)


def _is_untrusted(error: BaseException | None) -> bool:
    """Return True if a certificate is not valid. A retry would fail again."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
