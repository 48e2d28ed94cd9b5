"""A request and its answer, whatever server or gateway stands before us."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from punctual.domain.tenants.roles import Role

JSON_MEDIA_TYPE = "application/json"
Header = tuple[str, str]


class Caller(NamedTuple):
    """Who asks: all data is reached by way of the tenant."""

    tenant: str
    name: str
    role: Role = Role.ADMIN  # where nobody needs a token, everybody may everything
    token_id: str = ""  # empty where no token of ours was used
    address: str = ""  # where the call came from, as the server or gateway saw it
    expires_at: datetime | None = None  # of the token, where it ends


class Request(NamedTuple):
    """`path` is without the stage; header names are lower-case, all text Latin-1 as on the wire."""

    method: str
    path: str
    query: str
    headers: Mapping[bytes, bytes]
    body: bytes
    caller: Caller
    request_id: str
    root: str = "/v1"

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class Reply(NamedTuple):
    """`headers` are those besides content type, length and what every answer carries."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    content_type: str = JSON_MEDIA_TYPE


_encode = msgspec.json.Encoder().encode

COMMON_HEADERS: tuple[Header, ...] = (
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
)


def json_reply(status: int, value: Any, *headers: Header) -> Reply:
    return Reply(status, _encode(value), headers)


def quoted_size(text: bytes) -> int:
    """What JSON weighs where it is quoted once more, as in an answer that Lambda hands on.

    >>> quoted_size(b'{"a": 1}')
    10
    """
    return len(text) + text.count(b'"') + text.count(b"\\")
