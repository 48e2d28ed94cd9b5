"""Where a list goes on: opaque tokens, each good for the tenant and filters it was made for."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest

import msgspec

from punctual.engine.queries.cursor import made_up

_SIGNATURE_BYTES = 12
_decode = msgspec.json.Decoder(tuple[str, ...]).decode
_MAX_PART_CHARACTERS = 200  # characters of one part of a place

Filters = Mapping[str, Sequence[str]]


class Pager:
    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def token(
        self, tenant: str, listed: str, filters: Filters, after: tuple[str, ...] | None
    ) -> str | None:
        if after is None:
            return None
        place = msgspec.json.encode(after)
        mark = self._mark(tenant, listed, filters, place)
        return _text(mark + place)

    def after(
        self, tenant: str, listed: str, filters: Filters, token: str, *parts: int
    ) -> tuple[str, ...] | None:
        """The place that a token stands for, of so many parts; an empty token is the beginning."""
        if not token:
            return None
        try:
            raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
            place = _decode(raw[_SIGNATURE_BYTES:])
        except (ValueError, msgspec.MsgspecError) as error:
            raise made_up() from error
        mark = self._mark(tenant, listed, filters, raw[_SIGNATURE_BYTES:])
        # The decoder passes over what is no base64, so the text itself must be ours too.
        ours = _text(raw) == token
        if not (ours and compare_digest(raw[:_SIGNATURE_BYTES], mark)):
            raise made_up()
        # The mark is no secret: it keeps lists apart, and nobody from making up a place.
        if len(place) not in parts or not place[0] or max(map(len, place)) > _MAX_PART_CHARACTERS:
            raise made_up()
        return place

    def _mark(self, tenant: str, listed: str, filters: Filters, place: bytes) -> bytes:
        digest = blake2b(key=self._key, digest_size=_SIGNATURE_BYTES)
        for part in (tenant.encode(), listed.encode(), msgspec.json.encode(filters), place):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
