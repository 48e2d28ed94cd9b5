"""The lock on the data folder. Its holder knows that no other node uses this data."""

import fcntl
import os
from pathlib import Path

from punctual.node.files.data_folder import StoreError


class FolderLock:
    """A lock that the process holds until `release` or its end, however it ends."""

    def __init__(self, folder: Path) -> None:
        try:
            self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"The data folder {folder} cannot be used: {error.strerror}."
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            os.close(self._file)
            process = f" (process {holder})" if holder.isdecimal() else ""
            raise StoreError(
                f"Another node{process} uses the data folder {folder}: stop it, or set "
                "PUNCTUAL_DATA to another folder."
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1
