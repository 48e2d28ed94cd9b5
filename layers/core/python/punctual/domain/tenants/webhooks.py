"""Signatures (standardwebhooks.com) and retries of webhooks.

The secret of a tenant derives from a key of the installation. Only that key is stored.
"""

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from datetime import datetime, timedelta
from hmac import digest

from punctual.domain.identifiers import hash_fraction

WEBHOOK_KEY_BYTES = 32
WEBHOOK_SECRET_PREFIX = "whsec_"
WEBHOOK_ID_HEADER, WEBHOOK_TIMESTAMP_HEADER, WEBHOOK_SIGNATURE_HEADER = (
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
)

FIRST_WEBHOOK_DELAY = timedelta(seconds=10)
MAX_WEBHOOK_DELAY = timedelta(minutes=30)
MAX_WEBHOOK_ATTEMPTS = 20  # about six hours
_WEBHOOK_JITTER = 0.2  # webhooks that failed together retry at different times


def tenant_secret(key: bytes, tenant: str) -> bytes:
    """Return the secret of a tenant. It reveals neither the key nor the secret of another tenant.

    >>> tenant_secret(b"k" * 32, "acme") == tenant_secret(b"k" * 32, "umbrella")
    False
    """
    return digest(key, b"webhook:" + tenant.encode(), "sha256")


def format_secret(secret: bytes) -> str:
    """Return the secret in the form that receivers expect.

    >>> format_secret(b"0123456789")
    'whsec_MDEyMzQ1Njc4OQ=='
    """
    return WEBHOOK_SECRET_PREFIX + b64encode(secret).decode()


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Return the stored keys in force, newest first, or none if one of them is invalid.

    >>> parse_keys(format_keys([bytes(32)])) == (bytes(32),), parse_keys("unset"), parse_keys("")
    (True, (), ())
    """
    try:
        keys = tuple(b64decode(part, validate=True) for part in text.split())
    except (Error, ValueError):
        return ()
    return keys if all(len(key) == WEBHOOK_KEY_BYTES for key in keys) else ()


def format_keys(keys: Sequence[bytes]) -> str:
    """Return the keys in their stored form, for a parameter or a file."""
    return " ".join(b64encode(key).decode() for key in keys)


def rotate_keys(keys: Sequence[bytes], new_key: bytes) -> tuple[bytes, ...]:
    """Return the new key and the previous one. Both sign until the next rotation.

    >>> rotate_keys((b"2", b"1"), b"3"), rotate_keys((), b"1")
    ((b'3', b'2'), (b'1',))
    """
    return (new_key, *keys[:1])


def signature(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(digest(secret, signed, "sha256")).decode()


def signed_headers(
    secrets: Sequence[bytes], webhook_id: str, at: datetime, body: bytes
) -> dict[str, str]:
    """Return the headers, signed with each secret. A receiver needs only one of them."""
    timestamp = int(at.timestamp())
    return {
        WEBHOOK_ID_HEADER: webhook_id,
        WEBHOOK_TIMESTAMP_HEADER: str(timestamp),
        WEBHOOK_SIGNATURE_HEADER: " ".join(
            signature(secret, webhook_id, timestamp, body) for secret in secrets
        ),
    }


def webhook_retry_delay(webhook_id: str, attempts: int) -> timedelta | None:
    """Return the wait after `attempts` attempts, or None after the last attempt.

    >>> [int(webhook_retry_delay("x", attempts).total_seconds()) for attempts in (1, 2, 3)]
    [9, 16, 35]
    >>> webhook_retry_delay("x", MAX_WEBHOOK_ATTEMPTS)
    """
    if attempts >= MAX_WEBHOOK_ATTEMPTS:
        return None
    full_delay = min(MAX_WEBHOOK_DELAY, FIRST_WEBHOOK_DELAY * (1 << min(attempts - 1, 16)))
    return full_delay * (1 - _WEBHOOK_JITTER * hash_fraction(f"{webhook_id} {attempts}"))
