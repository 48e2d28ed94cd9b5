"""Describe a request and its reply, independent of the server or gateway."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from punctual.domain.tenants.roles import Role
from punctual.engine.ports.audit_log import Actor
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE
from punctual.engine.ports.lists.change_feed import ChangeFilters
from punctual.engine.queries.views import LongContent

Header = tuple[str, str]
MAX_ACTOR_CHARACTERS = 256


class Caller(NamedTuple):
    """The tenant and the name of the caller. The tenant is part of every data key."""

    tenant: str
    name: str
    role: Role = Role.ADMIN  # without tokens every caller is an admin
    token_id: str = ""  # empty without a Punctual token
    address: str = ""  # the client address that the server or gateway saw
    expires_at: datetime | None = None  # None for a token without an end


class Request(NamedTuple):
    """`path` has no stage. Header names are in lower case, and all text is Latin-1."""

    method: str
    path: str
    query: str
    headers: Mapping[bytes, bytes]
    body: bytes
    caller: Caller
    request_id: str
    root: str = "/v1"
    is_resumed: bool = False  # a call that has waited, and is answered now

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class ChangeWait(NamedTuple):
    """A call that waits for the next change, at most for `seconds`.

    `cursor` is the place up to which it has read. It is None if it has read nothing yet.
    """

    tenant: str
    filters: ChangeFilters
    seconds: int
    cursor: tuple[str, ...] | None = None


class Reply(NamedTuple):
    """`headers` leaves out the content type, the length and the common headers.

    `content` stands for the body, if it is given. With `wait`, a server that can wait for changes
    repeats the request later, and sends this reply if nothing changes.
    """

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    content_type: str = JSON_MEDIA_TYPE
    content: LongContent | None = None
    wait: ChangeWait | None = None


_encode = msgspec.json.Encoder().encode

COMMON_HEADERS: tuple[Header, ...] = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
)


def json_reply(status: int, value: Any, *headers: Header) -> Reply:
    return Reply(status, _encode(value), headers)


def absolute_url(request: Request, url: str) -> str:
    """Return an address that a client can call. A path of this server begins below its root."""
    if not url.startswith("/"):
        return url
    host = request.header(b"host") or ""
    return f"http://{host}{request.root}{url}"


def quoted_size(text: bytes) -> int:
    """Return the size of JSON text inside a JSON string. Lambda wraps answers so.

    >>> quoted_size(b'{"a": 1}')
    10
    """
    return len(text) + text.count(b'"') + text.count(b"\\")


def actor_of(request: Request) -> Actor:
    """Return the actor of a request for the audit, with bounded text."""
    caller = request.caller
    texts = (caller.name, caller.token_id, caller.address, request.request_id)
    return Actor(*(text[:MAX_ACTOR_CHARACTERS].encode(errors="replace").decode() for text in texts))
