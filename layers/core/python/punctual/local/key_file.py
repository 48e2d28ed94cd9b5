"""Keys of the node: files that only their owner may read."""

import os
import stat
from pathlib import Path

from punctual.local.errors import StoreError

OWNERS = 0o600


def write(path: Path, data: bytes) -> None:
    """Whole or not at all: a crash leaves no half of it."""
    drawn = path.with_suffix(".new")
    drawn.unlink(missing_ok=True)
    with open(os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    drawn.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # what is made with it is on the disk as soon as it is answered
    finally:
        os.close(folder)


def close_to_others(path: Path, what: str) -> int | None:
    """The rights that others had on the file, where they had any: now they have none."""
    try:
        found = stat.S_IMODE(path.stat().st_mode) if path.exists() else OWNERS
        if not found & ~OWNERS:
            return None
        path.chmod(OWNERS)
    except OSError as error:
        raise StoreError(
            f"{what} {path} is open to others, and its rights cannot be changed "
            f"({error.strerror}): let only the node's own user read it."
        ) from error
    return found
