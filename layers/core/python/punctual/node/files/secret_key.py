"""The key that encrypts the node's secrets: a file beside the token key, created on first use."""

import os
from pathlib import Path

from punctual.domain.errors import Unreadable
from punctual.node.files.data_folder import GUIDE, StoreError
from punctual.node.files.durable import read_or_create

SECRET_KEY_FILE = "secrets.key"
SECRET_KEY_BYTES = 32  # AES-256
_NONCE_BYTES = 12  # the size that GCM is made for; random, so one key serves 2^32 values


class SecretCipher:
    """Encrypts values with AES-256-GCM. A value is bound to its tenant and its name.

    A row that is moved to another tenant or another name, or changed, fails to decrypt.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / SECRET_KEY_FILE
        self._key = b""

    def encrypt(self, tenant: str, name: str, value: str) -> bytes:
        """Return the nonce and the encrypted value. The first call creates the key file."""
        if not self._key:
            self._key = self._checked(
                read_or_create(
                    self.path, lambda: os.urandom(SECRET_KEY_BYTES), "The key of secrets"
                )
            )
        # Import here: the cryptography costs 60 ms and 20 MB, and only secrets need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, value.encode(), _context(tenant, name))

    def decrypt(self, tenant: str, name: str, data: bytes) -> str:
        """Return the value. Raise `Unreadable` if the key is another one or the row was changed."""
        key = self.load()
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, encrypted = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        try:
            return AESGCM(key).decrypt(nonce, encrypted, _context(tenant, name)).decode()
        except (InvalidTag, ValueError) as error:
            raise Unreadable(
                f"The secret {name!r} cannot be decrypted: its row was changed, or {self.path} is "
                "another key. Put the right file back, or set the secret again."
            ) from error

    def load(self) -> bytes:
        """Return the key of existing secrets. A missing file is never replaced here."""
        if not self._key:
            try:
                self._key = self._checked(self.path.read_bytes())
            except FileNotFoundError as error:
                raise StoreError(
                    f"The key of secrets {self.path} is missing, and the database holds secrets: "
                    f"put the file back from a backup ({GUIDE}). If it is lost, write "
                    f"{SECRET_KEY_BYTES} random bytes to it and set every secret again."
                ) from error
            except OSError as error:
                raise StoreError(
                    f"The key of secrets {self.path} cannot be used: {error.strerror}."
                ) from error
        return self._key

    def _checked(self, key: bytes) -> bytes:
        if len(key) != SECRET_KEY_BYTES:
            raise StoreError(
                f"The key of secrets {self.path} has {len(key)} bytes, not {SECRET_KEY_BYTES}: put "
                f"the right file back, or write {SECRET_KEY_BYTES} random bytes to it and set "
                "every secret again."
            )
        return key


def _context(tenant: str, name: str) -> bytes:
    """Return the data that the cipher authenticates with a value. No tenant or name has a NUL."""
    return f"punctual secret\0{tenant}\0{name}".encode()
