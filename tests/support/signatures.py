"""Webhook signatures as a receiver checks them, written from the convention's own text."""

import base64
import hashlib
import hmac
from collections.abc import Mapping


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """https://github.com/standard-webhooks/standard-webhooks: symmetric, v1."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join(
        (headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body)
    )
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")
