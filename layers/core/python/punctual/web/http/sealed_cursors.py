"""Cursors that a client cannot read, because they hold numbers that all tenants share.

A sealed cursor is a MAC of the cursor, and then the cursor, encrypted with a key stream that begins
from the MAC. Equal cursors have equal texts, so that equal calls can share one answer.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest

import msgspec

MAC_BYTES = 16
STREAM_BLOCK_BYTES = 64
_decode_cursor = msgspec.json.Decoder(tuple[str, ...]).decode

ReadKey = Callable[[], bytes]


def seal_cursor(key: bytes, tenant: str, cursor: tuple[str, ...]) -> str:
    """Return the text of a cursor, which only this tenant can use."""
    data = msgspec.json.encode(cursor)
    mac = _mac(key, tenant, data)
    return urlsafe_b64encode(mac + _encrypted(key, mac, data)).rstrip(b"=").decode()


def unseal_cursor(key: bytes, tenant: str, text: str) -> tuple[str, ...] | None:
    """Return the cursor of a text, or None if it was not sealed with this key for this tenant."""
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        return None
    mac = raw[:MAC_BYTES]
    data = _encrypted(key, mac, raw[MAC_BYTES:])
    return _decode_cursor(data) if compare_digest(mac, _mac(key, tenant, data)) else None


def _mac(key: bytes, tenant: str, data: bytes) -> bytes:
    text = tenant.encode() + b"\0" + data  # the name of a tenant has no zero byte
    return blake2b(text, key=key, person=b"cursor mac", digest_size=MAC_BYTES).digest()


def _encrypted(key: bytes, mac: bytes, data: bytes) -> bytes:
    """Return the data, encrypted. A second call decrypts it."""
    blocks = [
        blake2b(
            mac + start.to_bytes(8, "big"),
            key=key,
            person=b"cursor stream",
            digest_size=STREAM_BLOCK_BYTES,
        ).digest()
        for start in range(0, len(data), STREAM_BLOCK_BYTES)
    ]
    stream = b"".join(blocks)
    return bytes(byte ^ mask for byte, mask in zip(data, stream, strict=False))
