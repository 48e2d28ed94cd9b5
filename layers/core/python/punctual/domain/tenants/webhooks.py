"""Signatures (standardwebhooks.com) and retries of webhooks.

The secret of a tenant derives from a key of the installation. Only that key is stored.
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
TRIES = 20  # about six hours
_SPREAD = 0.2  # webhooks that failed together retry at different times


def tenant_secret(key: bytes, tenant: str) -> bytes:
    """Return the secret of a tenant. It reveals neither the key nor the secret of another tenant.

    >>> tenant_secret(b"k" * 32, "acme") == tenant_secret(b"k" * 32, "umbrella")
    False
    """
    return digest(key, b"webhook:" + tenant.encode(), "sha256")


def shown_secret(secret: bytes) -> str:
    """Return the secret in the form that receivers expect.

    >>> shown_secret(b"0123456789")
    'whsec_MDEyMzQ1Njc4OQ=='
    """
    return SHOWN + b64encode(secret).decode()


def keys_of(text: str) -> tuple[bytes, ...]:
    """Return the stored keys in force, newest first, or none if one of them is invalid.

    >>> [len(key) for key in keys_of(b64encode(bytes(32)).decode())], keys_of("unset"), keys_of("")
    ([32], (), ())
    """
    try:
        keys = tuple(b64decode(part, validate=True) for part in text.split())
    except (Error, ValueError):
        return ()
    return keys if all(len(key) == KEY_BYTES for key in keys) else ()


def keys_text(keys: Sequence[bytes]) -> str:
    """Return the keys in their stored form, for a parameter or a file."""
    return " ".join(b64encode(key).decode() for key in keys)


def rotated(keys: Sequence[bytes], new: bytes) -> tuple[bytes, ...]:
    """Return the new key and the previous one. Both sign until the next rotation.

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
    """Return the headers, signed with each secret. A receiver needs only one of them."""
    timestamp = int(at.timestamp())
    return {
        ID: webhook_id,
        TIMESTAMP: str(timestamp),
        SIGNATURE: " ".join(signature(one, webhook_id, timestamp, body) for one in secrets),
    }


def again_after(webhook_id: str, tries: int) -> timedelta | None:
    """Return the wait after `tries` attempts, or None after the last attempt.

    >>> [int(again_after("x", n).total_seconds()) for n in (1, 2, 3)], again_after("x", TRIES)
    ([9, 16, 35], None)
    """
    if tries >= TRIES:
        return None
    whole = min(LONGEST, FIRST * (1 << min(tries - 1, 16)))
    return whole * (1 - _SPREAD * fraction(f"{webhook_id} {tries}"))
