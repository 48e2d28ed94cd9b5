"""Build and check the request of an `http` task before any connection is made."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.limits import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_URL_CHARACTERS,
    METHODS,
    RESERVED_HEADERS,
)
from punctual.tasks.redaction import Redactor
from punctual.tasks.text import as_text, encoded, json_bytes

if TYPE_CHECKING:  # loaded at the first URL; most submitted jobs have none
    import httpx

Header = tuple[bytes, bytes]

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"
USER_AGENT = "Punctual"
WITHOUT_PAYLOAD = ("GET", "HEAD", "OPTIONS")

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Stricter than httpx, which percent-encodes invalid host characters.
_HOST = re.compile(
    rb"[0-9A-Za-z_-][0-9A-Za-z._-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[0-9A-Za-z._~%-]+)?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BODY_HEADERS = frozenset({b"content-type", b"content-encoding", b"content-language"})
# Headers that go along to another origin. A job cannot put a credential into them.
_HARMLESS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"content-type",
        b"idempotency-key",
        b"user-agent",
    }
)
_TO_GET = {301: ("POST",), 302: ("POST",), 303: ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")}


class BadRedirect(BadTask):
    """The redirect target is not allowed."""


@dataclass(frozen=True)
class Request:
    """An outgoing request without the Host and Content-Length headers."""

    method: str
    url: "httpx.URL"
    headers: tuple[Header, ...]
    body: bytes | None

    def wire_headers(self) -> list[Header]:
        framing = [(b"Host", self.url.netloc)]
        if self.body is not None:
            framing.append((b"Content-Length", str(len(self.body)).encode()))
        return [*framing, *self.headers]


def build_request(attempt: Attempt) -> Request:
    """Return the first request of an attempt. Its placeholders must be expanded."""
    task = attempt.task
    method = task.get("method") or "POST"
    if method not in METHODS:
        raise BadTask(f"{as_text(method)} is no method that Punctual calls with")
    body, body_type = _body(attempt, method)
    headers = _headers(task.get("headers") or {})
    given = {name.lower() for name, _ in headers}
    defaults = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
        "Idempotency-Key": attempt.run_id,
    }
    if body_type:
        defaults["Content-Type"] = body_type
    added = tuple(
        (name.encode(), value.encode())
        for name, value in defaults.items()
        if name.lower().encode() not in given
    )
    return Request(method, parse_url(task["url"]), headers + added, body)


def url_problem(url: Any) -> str:
    """Return why the text of a URL is not valid, or an empty string."""
    try:
        parse_url(url)
    except BadTask as error:
        return str(error)
    return ""


def parse_url(text: Any) -> "httpx.URL":
    if not isinstance(text, str):
        raise BadTask("The URL is not a text")
    if len(text) > MAX_URL_CHARACTERS:
        raise BadTask(f"The URL is longer than {MAX_URL_CHARACTERS} characters")
    encoded(text, "The URL")
    import httpx

    try:
        return _callable(httpx.URL(text))
    except (httpx.InvalidURL, ValueError):
        raise BadTask("The URL is not valid") from None


def redirected(request: Request, status: int, location: str, secrets: frozenset[str]) -> Request:
    """Return the request to the redirect target. Secrets never go to another origin."""
    import httpx

    try:
        url = _callable(request.url.join(location))
    except (httpx.InvalidURL, ValueError):
        raise BadRedirect("The server redirects to a URL that is not valid") from None
    except BadTask as error:
        raise BadRedirect(
            f"The server redirects to a URL that may not be called: {error}"
        ) from None
    after = replace(request, url=url)
    if request.method in _TO_GET.get(status, ()):
        kept = tuple(h for h in request.headers if h[0].lower() not in _BODY_HEADERS)
        after = replace(after, method="GET", body=None, headers=kept)
    if _same_origin(request.url, url):
        return after
    redactor = Redactor(secrets)
    if after.body and redactor.data(after.body) != after.body:
        raise BadRedirect("The server redirects a body with a secret to another origin")
    kept = tuple(
        (name, value)
        for name, value in after.headers
        if name.lower() in _HARMLESS and redactor.data(value) == value
    )
    return replace(after, headers=kept)


def _callable(url: "httpx.URL") -> "httpx.URL":
    if url.scheme not in ("http", "https"):
        raise BadTask("The URL does not begin with http:// or https://")
    if not _HOST.fullmatch(url.raw_host):
        raise BadTask("The URL names no host that could be called")
    if url.port is not None and not 1 <= url.port <= 65535:
        raise BadTask("The URL names a port that does not exist")
    if url.userinfo:
        raise BadTask("The URL holds a user name; put credentials into a header")
    # Remove the trailing dot. Certificates and virtual hosts do not contain it.
    return url.copy_with(host=url.host.rstrip(".")) if url.host.endswith(".") else url


def _same_origin(one: "httpx.URL", other: "httpx.URL") -> bool:
    """Return True if both URLs have the same origin. An upgrade from HTTP to HTTPS is allowed."""
    if one.host != other.host:
        return False
    if one.scheme == "http" and other.scheme == "https":
        return one.port is None and other.port is None
    return (one.scheme, one.port) == (other.scheme, other.port)


def _body(attempt: Attempt, method: str) -> tuple[bytes | None, str]:
    body = attempt.task.get("body")
    if body is None:
        if method in WITHOUT_PAYLOAD:
            return None, ""
        return json_bytes(attempt.payload), JSON_TYPE
    if isinstance(body, str):
        return encoded(body, "The body"), TEXT_TYPE
    return json_bytes(body), JSON_TYPE


def _headers(headers: dict[str, Any]) -> tuple[Header, ...]:
    if len(headers) > MAX_HEADERS:
        raise BadTask(f"There are more than {MAX_HEADERS} headers")
    pairs = tuple(_header(name, as_text(value)) for name, value in headers.items())
    if sum(len(name) + len(value) for name, value in pairs) > MAX_HEADER_BYTES:
        raise BadTask(f"The headers are longer than {MAX_HEADER_BYTES} bytes")
    return pairs


def _header(name: str, value: str) -> Header:
    if not _NAME.fullmatch(name):
        raise BadTask(f"{name!r} is no name of a header")
    if name.lower() in RESERVED_HEADERS:
        raise BadTask(f"The header {name} is Punctual's to set")
    if _CONTROL.search(value):
        raise BadTask(f"The header {name} holds a line break or another control character")
    return name.encode(), encoded(value.strip(" \t"), f"The header {name}")
