"""The key of the node's tokens: a file that only its owner may read, made when first needed."""

import os
import stat
from pathlib import Path

from punctual.domain.tokens import KEY_BYTES
from punctual.local.errors import StoreError

FILE = "token.key"
OWNERS = 0o600


class TokenKey:
    """Without it all tokens are worth nothing; with it and the store they still cannot be made
    out, for the store holds hashes alone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._key = b""

    @property
    def is_there(self) -> bool:
        """Else the next `read` makes one, with which no token that was made is good."""
        return self.path.exists()

    def read(self) -> bytes:
        if not self._key:
            try:
                self._key = self.path.read_bytes() if self.path.exists() else self._made()
            except OSError as error:
                raise StoreError(
                    f"The key of tokens {self.path} cannot be used: {error.strerror}."
                ) from error
        if len(self._key) != KEY_BYTES:
            found, self._key = len(self._key), b""
            raise StoreError(
                f"The key of tokens {self.path} has {found} bytes, not {KEY_BYTES}: put the "
                "right file back, or remove it, and all tokens are made anew."
            )
        return self._key

    def close_to_others(self) -> int | None:
        """The rights that others had on the file, where they had any: now they have none."""
        try:
            found = stat.S_IMODE(self.path.stat().st_mode) if self.path.exists() else OWNERS
            if not found & ~OWNERS:
                return None
            self.path.chmod(OWNERS)
        except OSError as error:
            raise StoreError(
                f"The key of tokens {self.path} is open to others, and its rights cannot be "
                f"changed ({error.strerror}): let only the node's own user read it."
            ) from error
        return found

    def _made(self) -> bytes:
        """Whole or not at all: a crash leaves no half of it."""
        key = os.urandom(KEY_BYTES)
        drawn = self.path.with_suffix(".new")
        drawn.unlink(missing_ok=True)
        with open(os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS), "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        drawn.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # tokens made with it are on the disk as soon as they are answered
        finally:
            os.close(folder)
        return key
