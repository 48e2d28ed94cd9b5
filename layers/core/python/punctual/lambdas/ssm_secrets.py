"""The parameters in SSM: token key, hash of the admin token, webhook keys, address of the API."""

from base64 import b64decode
from binascii import Error

TOKEN_KEY_PARAMETER = "token-key"
ADMIN_HASH_PARAMETER = "token-hash"
WEBHOOK_KEY_PARAMETER = "webhook-key"
API_ADDRESS_PARAMETER = "api-address"  # not secret: runners of scripts call the API there
UNSET_SECRET = "unset"  # the value in the template; no token has this hash
SECRETS_CACHE_SECONDS = 45.0  # a new secret is in use within a minute


def decode_key(value: str) -> bytes:
    """Return the key that `make deploy` wrote, or empty bytes if the text is not a key.

    >>> decode_key("a2V5"), decode_key("unset!")
    (b'key', b'')
    """
    try:
        return b64decode(value.strip(), validate=True)
    except (Error, ValueError):
        return b""
