"""Build and check the request of an `http` task before any connection is made."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from punctual.domain.task_limits import (
    CONTROL_IN_HEADER,
    HEADER_NAME,
    MAX_TASK_HEADER_BYTES,
    MAX_TASK_HEADERS,
    MAX_URL_CHARACTERS,
)
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE, TEXT_CONTENT_TYPE
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.limits import HTTP_METHODS, RESERVED_HEADERS
from punctual.tasks.redaction import Redactor
from punctual.tasks.text import as_text, encode_text, json_bytes

if TYPE_CHECKING:  # loaded at the first URL; most submitted jobs have none
    import httpx

RawHeader = tuple[bytes, bytes]

USER_AGENT = "Punctual"
METHODS_WITHOUT_PAYLOAD = ("GET", "HEAD", "OPTIONS")

# Stricter than httpx, which percent-encodes invalid host characters.
_HOST = re.compile(
    rb"[0-9A-Za-z_-][0-9A-Za-z._-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[0-9A-Za-z._~%-]+)?"
)
_BODY_HEADERS = frozenset({b"content-type", b"content-encoding", b"content-language"})
# Headers that go along to another origin. A job cannot put a credential into them.
_CROSS_ORIGIN_HEADERS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"content-type",
        b"idempotency-key",
        b"user-agent",
    }
)
_METHODS_REDIRECTED_TO_GET = {
    301: ("POST",),
    302: ("POST",),
    303: ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
}


class BadRedirect(BadTask):
    """The redirect target is not allowed."""


@dataclass(frozen=True)
class Request:
    """An outgoing request without the Host and Content-Length headers."""

    method: str
    url: "httpx.URL"
    headers: tuple[RawHeader, ...]
    body: bytes | None

    def wire_headers(self) -> list[RawHeader]:
        framing = [(b"Host", self.url.netloc)]
        if self.body is not None:
            framing.append((b"Content-Length", str(len(self.body)).encode()))
        return [*framing, *self.headers]


def build_request(attempt: Attempt) -> Request:
    """Return the first request of an attempt. Its placeholders must be expanded."""
    task = attempt.task
    method = task.get("method") or "POST"
    if method not in HTTP_METHODS:
        raise BadTask(f"{as_text(method)} is not a supported method")
    body, body_type = _encode_body(attempt, method)
    headers = _encode_headers(task.get("headers") or {})
    job_header_names = {name.lower() for name, _ in headers}
    defaults = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
        "Idempotency-Key": attempt.run_id,
    }
    if body_type:
        defaults["Content-Type"] = body_type
    default_headers = tuple(
        (name.encode(), value.encode())
        for name, value in defaults.items()
        if name.lower().encode() not in job_header_names
    )
    return Request(method, parse_url(task["url"]), headers + default_headers, body)


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
    encode_text(text, "The URL")
    import httpx

    try:
        return _check_url(httpx.URL(text))
    except (httpx.InvalidURL, ValueError):
        raise BadTask("The URL is not valid") from None


def redirect_request(
    request: Request, status: int, location: str, secrets: frozenset[str]
) -> Request:
    """Return the request to the redirect target. Secrets never go to another origin."""
    import httpx

    try:
        url = _check_url(request.url.join(location))
    except (httpx.InvalidURL, ValueError):
        raise BadRedirect("The server redirects to a URL that is not valid") from None
    except BadTask as error:
        raise BadRedirect(
            f"The server redirects to a URL that may not be called: {error}"
        ) from None
    redirect = replace(request, url=url)
    if request.method in _METHODS_REDIRECTED_TO_GET.get(status, ()):
        headers = tuple(
            header for header in request.headers if header[0].lower() not in _BODY_HEADERS
        )
        redirect = replace(redirect, method="GET", body=None, headers=headers)
    if _is_same_origin(request.url, url):
        return redirect
    redactor = Redactor(secrets)
    if redirect.body and redactor.data(redirect.body) != redirect.body:
        raise BadRedirect("The server redirects a body with a secret to another origin")
    headers = tuple(
        (name, value)
        for name, value in redirect.headers
        if name.lower() in _CROSS_ORIGIN_HEADERS and redactor.data(value) == value
    )
    return replace(redirect, headers=headers)


def _check_url(url: "httpx.URL") -> "httpx.URL":
    if url.scheme not in ("http", "https"):
        raise BadTask("The URL does not begin with http:// or https://")
    if not _HOST.fullmatch(url.raw_host):
        raise BadTask("The URL has no valid host")
    if url.port is not None and not 1 <= url.port <= 65535:
        raise BadTask("The URL has an invalid port: it must be 1 to 65535")
    if url.userinfo:
        raise BadTask("The URL holds a user name; put credentials into a header")
    # Remove the trailing dot. Certificates and virtual hosts do not contain it.
    return url.copy_with(host=url.host.rstrip(".")) if url.host.endswith(".") else url


def _is_same_origin(first: "httpx.URL", second: "httpx.URL") -> bool:
    """Return True if both URLs have the same origin. An upgrade from HTTP to HTTPS is allowed."""
    if first.host != second.host:
        return False
    if first.scheme == "http" and second.scheme == "https":
        return first.port is None and second.port is None
    return (first.scheme, first.port) == (second.scheme, second.port)


def _encode_body(attempt: Attempt, method: str) -> tuple[bytes | None, str]:
    body = attempt.task.get("body")
    if body is None:
        if method in METHODS_WITHOUT_PAYLOAD:
            return None, ""
        return json_bytes(attempt.payload), JSON_MEDIA_TYPE
    if isinstance(body, str):
        return encode_text(body, "The body"), TEXT_CONTENT_TYPE
    return json_bytes(body), JSON_MEDIA_TYPE


def _encode_headers(headers: dict[str, Any]) -> tuple[RawHeader, ...]:
    if len(headers) > MAX_TASK_HEADERS:
        raise BadTask(f"There are more than {MAX_TASK_HEADERS} headers")
    pairs = tuple(_encode_header(name, as_text(value)) for name, value in headers.items())
    if sum(len(name) + len(value) for name, value in pairs) > MAX_TASK_HEADER_BYTES:
        raise BadTask(f"The headers are longer than {MAX_TASK_HEADER_BYTES} bytes")
    return pairs


def _encode_header(name: str, value: str) -> RawHeader:
    if not HEADER_NAME.fullmatch(name):
        raise BadTask(f"{name!r} is not a valid header name")
    if name.lower() in RESERVED_HEADERS:
        raise BadTask(f"The header {name} is set by Punctual: leave it out")
    if CONTROL_IN_HEADER.search(value):
        raise BadTask(f"The header {name} holds a line break or another control character")
    return name.encode(), encode_text(value.strip(" \t"), f"The header {name}")
