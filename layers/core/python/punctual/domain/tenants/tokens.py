"""Tokens: their fields, and how a secret is made, checked and stored.

The check of each call needs this module, so it imports nothing heavy.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime, timedelta
from hmac import compare_digest, digest
from typing import NamedTuple

from punctual.domain.tenants.roles import Role

TOKEN_PREFIX = "pnc_"
TOKEN_RANDOM_BYTES = 32
TOKEN_KEY_BYTES = 32
INVALID_TOKEN_RETENTION = timedelta(days=30)  # how long an invalid token is still listed
# Resolution of the time of the last use, since each update writes a row.
LAST_USED_RESOLUTION = timedelta(minutes=5)

TENANT_REGEX = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_TENANT_PATTERN = re.compile(TENANT_REGEX)
_MAC_BYTES = 10  # with the random bytes a multiple of three, so there is no padding
_TOKEN_PATTERN = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{56}}")


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

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def delete_at(self) -> datetime | None:
        """Return when the row may be deleted, or None for a token without an end."""
        end_times = [at for at in (self.expires_at, self.revoked_at) if at is not None]
        return min(end_times) + INVALID_TOKEN_RETENTION if end_times else None


def is_valid_tenant(name: str) -> bool:
    """Return whether the text is a valid name of a tenant, safe in keys, paths and logs.

    >>> is_valid_tenant("acme-1"), is_valid_tenant("../acme"), is_valid_tenant("")
    (True, False, False)
    """
    return _TENANT_PATTERN.fullmatch(name) is not None


def make_secret(key: bytes, random: bytes) -> str:
    """Return the secret that clients send: random bytes and their MAC.

    A guessed secret fails by its MAC, without a read of a table.

    >>> len(make_secret(b"k", bytes(TOKEN_RANDOM_BYTES)))
    60
    """
    return TOKEN_PREFIX + urlsafe_b64encode(random + _mac(key, random)).decode()


def has_valid_mac(key: bytes, text: str) -> bool:
    """Return whether `make_secret` made the text with this key. The token may still be invalid.

    >>> secret = make_secret(b"k", bytes(32))
    >>> has_valid_mac(b"k", secret), has_valid_mac(b"x", secret)
    (True, False)
    """
    if not key or not _TOKEN_PATTERN.fullmatch(text):
        return False
    raw = urlsafe_b64decode(text.removeprefix(TOKEN_PREFIX))
    return compare_digest(raw[TOKEN_RANDOM_BYTES:], _mac(key, raw[:TOKEN_RANDOM_BYTES]))


def keyed_hash(key: bytes, text: str) -> str:
    """Return the stored form of a token. It is useless to a reader without the key.

    >>> len(keyed_hash(b"k", "pnc_a"))
    64
    """
    return digest(key, b"token:" + text.encode(), "sha256").hex()


def _mac(key: bytes, random: bytes) -> bytes:
    return digest(key, b"mark:" + random, "sha256")[:_MAC_BYTES]
