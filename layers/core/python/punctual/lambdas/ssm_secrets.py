"""What an account keeps in SSM: the key of all tokens, the admin token's hash, webhooks' keys."""

from base64 import b64decode
from binascii import Error

TOKEN_KEY = "token-key"
TOKEN_HASH = "token-hash"
WEBHOOK_KEY = "webhook-key"
UNSET = "unset"  # what the template writes: the hash of no token


def key_of(value: str) -> bytes:
    """As `make deploy` writes it; empty where this is no key.

    >>> key_of("a2V5"), key_of("unset!")
    (b'key', b'')
    """
    try:
        return b64decode(value.strip(), validate=True)
    except (Error, ValueError):
        return b""
