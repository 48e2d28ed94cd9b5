"""The key of the node's tokens: a file that only its owner may read, created on first use."""

import os
from pathlib import Path

from punctual.domain.tenants.tokens import TOKEN_KEY_BYTES
from punctual.node.files.data_folder import StoreError
from punctual.node.files.durable import read_or_create

TOKEN_KEY_FILE = "token.key"


class TokenKey:
    """The key that token hashes depend on.

    Without it no token is valid. With it, tokens still cannot be derived from the store, which
    holds only hashes.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / TOKEN_KEY_FILE
        self._key = b""

    @property
    def exists(self) -> bool:
        """Return whether the key exists.

        Otherwise the next `read` creates one, which makes all former tokens invalid.
        """
        return self.path.exists()

    def read(self) -> bytes:
        if not self._key:
            self._key = read_or_create(
                self.path, lambda: os.urandom(TOKEN_KEY_BYTES), "The key of tokens"
            )
        if len(self._key) != TOKEN_KEY_BYTES:
            length, self._key = len(self._key), b""
            raise StoreError(
                f"The key of tokens {self.path} has {length} bytes, not {TOKEN_KEY_BYTES}: put the "
                "right file back, or remove it and create all tokens again."
            )
        return self._key
