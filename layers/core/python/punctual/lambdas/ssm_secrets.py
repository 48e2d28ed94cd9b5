"""Reads the secrets in SSM: token key, hash of the admin token, and webhook keys."""

from base64 import b64decode
from binascii import Error

TOKEN_KEY = "token-key"
TOKEN_HASH = "token-hash"
WEBHOOK_KEY = "webhook-key"
UNSET = "unset"  # the value in the template; no token has this hash


def key_of(value: str) -> bytes:
    """Return the key that `make deploy` wrote, or empty bytes if the text is not a key.

    >>> key_of("a2V5"), key_of("unset!")
    (b'key', b'')
    """
    try:
        return b64decode(value.strip(), validate=True)
    except (Error, ValueError):
        return b""
