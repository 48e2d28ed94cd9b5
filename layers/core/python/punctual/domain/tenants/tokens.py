"""Tokens: their fields, and how a secret is made, checked and stored.

The check of each call needs this module, so it imports nothing heavy.
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
KEPT = timedelta(days=30)  # how long an invalid token is still listed
USED = timedelta(minutes=5)  # resolution of the last use, since each update writes a row

TENANT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_TENANT = re.compile(TENANT)
_MARK_BYTES = 10  # with the random bytes a multiple of three, so there is no padding
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{56}}")


class Token(NamedTuple):
    """All fields of a token but the secret, which cannot be derived from them."""

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
        """Return when the row may be deleted, or None for a token without an end."""
        ends = [at for at in (self.expires_at, self.revoked_at) if at is not None]
        return min(ends) + KEPT if ends else None


def is_tenant(name: str) -> bool:
    """Return whether the text is a valid name of a tenant, safe in keys, paths and logs.

    >>> is_tenant("acme-1"), is_tenant("../acme"), is_tenant("")
    (True, False, False)
    """
    return _TENANT.fullmatch(name) is not None


def secret(key: bytes, random: bytes) -> str:
    """Return the secret that clients send: the random bytes, and a mark made with the key.

    A guessed secret fails by its mark, without a read of a table.

    >>> len(secret(b"k", bytes(RANDOM_BYTES)))
    60
    """
    return PREFIX + urlsafe_b64encode(random + _mark(key, random)).decode()


def is_ours(key: bytes, text: str) -> bool:
    """Return whether `secret` made the text with this key. The token may still be invalid.

    >>> is_ours(b"k", secret(b"k", bytes(32))), is_ours(b"x", secret(b"k", bytes(32)))
    (True, False)
    """
    if not key or not _SECRET.fullmatch(text):
        return False
    raw = urlsafe_b64decode(text.removeprefix(PREFIX))
    return compare_digest(raw[RANDOM_BYTES:], _mark(key, raw[:RANDOM_BYTES]))


def keyed_hash(key: bytes, text: str) -> str:
    """Return the stored form of a token. It is useless to a reader without the key.

    >>> len(keyed_hash(b"k", "pnc_a"))
    64
    """
    return digest(key, b"token:" + text.encode(), "sha256").hex()


def _mark(key: bytes, random: bytes) -> bytes:
    return digest(key, b"mark:" + random, "sha256")[:_MARK_BYTES]
