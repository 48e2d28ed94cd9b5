"""Webhooks: how they are signed (standardwebhooks.com), and when one is tried again.

The secret of a tenant derives from a key of the installation, which alone is kept.
"""

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from datetime import datetime, timedelta
from hmac import digest

from punctual.domain.identifiers import fraction

KEY_BYTES = 32
SHOWN = "whsec_"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

FIRST = timedelta(seconds=10)
LONGEST = timedelta(minutes=30)
TRIES = 20  # some six hours
_SPREAD = 0.2  # those that failed together come again apart


def tenant_secret(key: bytes, tenant: str) -> bytes:
    """Of no use to find out the key, or another tenant's.

    >>> tenant_secret(b"k" * 32, "acme") == tenant_secret(b"k" * 32, "umbrella")
    False
    """
    return digest(key, b"webhook:" + tenant.encode(), "sha256")


def shown_secret(secret: bytes) -> str:
    """As receivers take it.

    >>> shown_secret(b"0123456789")
    'whsec_MDEyMzQ1Njc4OQ=='
    """
    return SHOWN + b64encode(secret).decode()


def keys_of(text: str) -> tuple[bytes, ...]:
    """The keys in force, the newest first, as they are kept; none where one of them is no key.

    >>> [len(key) for key in keys_of(b64encode(bytes(32)).decode())], keys_of("unset"), keys_of("")
    ([32], (), ())
    """
    try:
        keys = tuple(b64decode(part, validate=True) for part in text.split())
    except (Error, ValueError):
        return ()
    return keys if all(len(key) == KEY_BYTES for key in keys) else ()


def keys_text(keys: Sequence[bytes]) -> str:
    """As they are kept: in a parameter, in a file."""
    return " ".join(b64encode(key).decode() for key in keys)


def rotated(keys: Sequence[bytes], new: bytes) -> tuple[bytes, ...]:
    """The new one and the one before: by both is signed until the next rotation.

    >>> rotated((b"2", b"1"), b"3"), rotated((), b"1")
    ((b'3', b'2'), (b'1',))
    """
    return (new, *keys[:1])


def signature(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(digest(secret, signed, "sha256")).decode()


def signed_headers(
    secrets: Sequence[bytes], webhook_id: str, at: datetime, body: bytes
) -> dict[str, str]:
    """By each of the secrets: a receiver that knows one of them is content."""
    timestamp = int(at.timestamp())
    return {
        ID: webhook_id,
        TIMESTAMP: str(timestamp),
        SIGNATURE: " ".join(signature(one, webhook_id, timestamp, body) for one in secrets),
    }


def again_after(webhook_id: str, tries: int) -> timedelta | None:
    """How long to wait after so many tries; None: it is given up.

    >>> [int(again_after("x", n).total_seconds()) for n in (1, 2, 3)], again_after("x", TRIES)
    ([9, 16, 35], None)
    """
    if tries >= TRIES:
        return None
    whole = min(LONGEST, FIRST * (1 << min(tries - 1, 16)))
    return whole * (1 - _SPREAD * fraction(f"{webhook_id} {tries}"))
