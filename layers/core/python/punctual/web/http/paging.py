"""Page tokens: opaque text that says where the next page of one list begins."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from punctual.engine.queries.cursor import invalid_cursor
from punctual.web.http.query import Query, filter_parameters
from punctual.web.http.request import Request

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
_DIGEST_BYTES = 12
_MAX_PART_CHARACTERS = 256  # of a job's name
_decode_cursor = msgspec.json.Decoder(tuple[str, ...]).decode

Filters = Mapping[str, Sequence[str]]


class Paging(NamedTuple):
    """The page that a list call asks for."""

    tenant: str
    list_name: str
    filters: Filters
    limit: int
    token: str

    @classmethod
    def of(cls, request: Request, query: Query, list_name: str) -> "Paging":
        """Read the page size and token of a call. `list_name` is different for each list."""
        limit = query.number("limit", DEFAULT_PAGE_SIZE, 1, MAX_PAGE_SIZE)
        filters = filter_parameters(request.query)
        return cls(request.caller.tenant, list_name, filters, limit, query.text("next_token"))

    def cursor(self, *lengths: int) -> tuple[str, ...] | None:
        return page_cursor(self.tenant, self.list_name, self.filters, self.token, *lengths)

    def next_token(self, cursor: tuple[str, ...] | None) -> str | None:
        return page_token(self.tenant, self.list_name, self.filters, cursor)


def page_token(
    tenant: str, list_name: str, filters: Filters, cursor: tuple[str, ...] | None
) -> str | None:
    """Return the token of the page after `cursor`, or None after the last page.

    The token is good for one tenant, one list and its filters.
    """
    if cursor is None:
        return None
    data = msgspec.json.encode(cursor)
    return _encode_token(_digest(tenant, list_name, filters, data) + data)


def page_cursor(
    tenant: str, list_name: str, filters: Filters, token: str, *lengths: int
) -> tuple[str, ...] | None:
    """Return the cursor of a token, or None for an empty token.

    `lengths` are the numbers of parts that a cursor of this list can have.
    """
    if not token:
        return None
    try:
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        cursor = _decode_cursor(raw[_DIGEST_BYTES:])
    except (ValueError, msgspec.MsgspecError) as error:
        raise invalid_cursor() from error
    digest = _digest(tenant, list_name, filters, raw[_DIGEST_BYTES:])
    # The decoder skips characters that are not base64, so the text is compared too.
    if raw[:_DIGEST_BYTES] != digest or _encode_token(raw) != token:
        raise invalid_cursor()
    # The digest is not a secret. It keeps lists apart, but a client can compute it.
    if len(cursor) not in lengths or not cursor[0]:
        raise invalid_cursor()
    if max(map(len, cursor)) > _MAX_PART_CHARACTERS:
        raise invalid_cursor()
    return cursor


def _digest(tenant: str, list_name: str, filters: Filters, cursor: bytes) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (tenant.encode(), list_name.encode(), msgspec.json.encode(filters), cursor):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def _encode_token(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
