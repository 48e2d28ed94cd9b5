"""Check webhook signatures as a receiver does, written from the convention's text."""

import base64
import hashlib
import hmac
from collections.abc import Mapping


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return True if a signature is valid by Standard Webhooks, symmetric, v1.

    https://github.com/standard-webhooks/standard-webhooks
    """
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join(
        (headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body)
    )
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")
