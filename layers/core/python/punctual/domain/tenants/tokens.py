"""Tokens: what is known of one, and how its secret is made, told from others and kept.

Whoever checks a call imports this first of all: nothing heavy may come with it.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime, timedelta
from hmac import compare_digest, digest
from typing import NamedTuple

from punctual.domain.tenants.roles import Role

PREFIX = "pnc_"
RANDOM_BYTES = 32
KEY_BYTES = 32
KEPT = timedelta(days=30)  # a token that is good no more is shown for so long
USED = timedelta(minutes=5)  # its last use is known as finely as this, for each writes a row

TENANT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_TENANT = re.compile(TENANT)
_MARK_BYTES = 10  # with the random bytes a multiple of three: no padding, one spelling
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{56}}")


class Token(NamedTuple):
    """All but the secret, of which nothing is kept that it could be made from."""

    token_id: str
    tenant: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def forgotten_at(self) -> datetime | None:
        """When its row may go; None while it is good for ever."""
        ends = [at for at in (self.expires_at, self.revoked_at) if at is not None]
        return min(ends) + KEPT if ends else None


def is_tenant(name: str) -> bool:
    """Names that stand in keys, paths and logs alike.

    >>> is_tenant("acme-1"), is_tenant("../acme"), is_tenant("")
    (True, False, False)
    """
    return _TENANT.fullmatch(name) is not None


def secret(key: bytes, random: bytes) -> str:
    """What its owner sends: the random bytes, and a mark that only the key can make.

    Who guesses is refused by the mark alone, without a look into any table.

    >>> len(secret(b"k", bytes(RANDOM_BYTES)))
    60
    """
    return PREFIX + urlsafe_b64encode(random + _mark(key, random)).decode()


def is_ours(key: bytes, text: str) -> bool:
    """Whether `secret` made it, with this key; not whether it is good.

    >>> is_ours(b"k", secret(b"k", bytes(32))), is_ours(b"x", secret(b"k", bytes(32)))
    (True, False)
    """
    if not key or not _SECRET.fullmatch(text):
        return False
    raw = urlsafe_b64decode(text.removeprefix(PREFIX))
    return compare_digest(raw[RANDOM_BYTES:], _mark(key, raw[:RANDOM_BYTES]))


def keyed_hash(key: bytes, text: str) -> str:
    """What is kept of a token: of no use to who reads it, and does not know the key.

    >>> len(keyed_hash(b"k", "pnc_a"))
    64
    """
    return digest(key, b"token:" + text.encode(), "sha256").hex()


def _mark(key: bytes, random: bytes) -> bytes:
    return digest(key, b"mark:" + random, "sha256")[:_MARK_BYTES]
