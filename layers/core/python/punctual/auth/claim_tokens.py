"""Signed claims. An external executor holds one for each attempt, and needs no other right.

The signature is checked without a read. Whether the claim still holds is decided by the
conditional write that follows.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import cached_property
from typing import Any

from punctual.domain.claims import ClaimIdentity, OutputUpload

MAX_CLAIM_CHARACTERS = 512
_CLAIM_LABEL, _UPLOAD_LABEL = b"punctual/claim/1", b"punctual/upload/1"


class ClaimTokens:
    """Signs and reads claims. `load_token_key` returns the installation's token key."""

    def __init__(self, load_token_key: Callable[[], bytes]) -> None:
        self._load_token_key = load_token_key

    @cached_property
    def _keys(self) -> tuple[bytes, bytes]:
        """Return keys for claims and uploads. They do not reveal the token key."""
        token_key = self._load_token_key()
        return _derived_key(token_key, _CLAIM_LABEL), _derived_key(token_key, _UPLOAD_LABEL)

    def sign(self, claim: ClaimIdentity) -> str:
        return _signed_text(_json(claim), self._keys[0], b"")

    def read(self, text: str) -> ClaimIdentity | None:
        """Return the claim of a text, or None if this installation did not sign it."""
        data = _signed_data(text, self._keys[0], b"")
        return None if data is None else ClaimIdentity(*json.loads(data))

    def sign_upload(self, claim: ClaimIdentity, upload: OutputUpload) -> str:
        """Return a text that names the announced output in the finish of the same claim."""
        return _signed_text(_json(upload), self._keys[1], _json(claim))

    def read_upload(self, claim: ClaimIdentity, text: str) -> OutputUpload | None:
        data = _signed_data(text, self._keys[1], _json(claim))
        return None if data is None else OutputUpload(*json.loads(data))


def _derived_key(token_key: bytes, label: bytes) -> bytes:
    return hmac.digest(token_key, label, "sha256")


def _signed_text(data: bytes, key: bytes, context: bytes) -> str:
    encoded = _encode(data)
    return f"{encoded}.{_signature(encoded, key, context)}"


def _signed_data(text: str, key: bytes, context: bytes) -> bytes | None:
    """Return the data of a signed text, or None.

    The signature covers the text itself, so one claim has only one text.
    """
    encoded, _, signature = text.partition(".")
    if not text.isascii() or len(text) > MAX_CLAIM_CHARACTERS:
        return None
    if not hmac.compare_digest(_signature(encoded, key, context), signature):
        return None
    return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def _signature(encoded: str, key: bytes, context: bytes) -> str:
    return _encode(hmac.digest(key, encoded.encode() + b"." + context, "sha256"))


def _json(fields: tuple[Any, ...]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
