"""What an account keeps of tokens in SSM: the key of them all, and the admin token's hash."""

from base64 import b64decode
from binascii import Error

TOKEN_KEY = "token-key"
TOKEN_HASH = "token-hash"
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
