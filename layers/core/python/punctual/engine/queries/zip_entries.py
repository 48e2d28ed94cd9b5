"""Reads the first bytes of a file in a stored zip, without the rest of the zip."""

import io
import zipfile
import zlib
from collections.abc import Callable

MAX_ZIP_READ_BYTES = 8 * 1024 * 1024  # for the list of files and the head of one
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,  # an encrypted file; as NotImplementedError, an unknown way to compress
    ValueError,
)

ReadRange = Callable[[int, int], bytes]
"""Returns the bytes from a first place up to a second one."""


class _RangeFile(io.RawIOBase):
    """A file of which only the wanted ranges are read."""

    def __init__(self, read_range: ReadRange, size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._place = 0
        self._free_bytes = MAX_ZIP_READ_BYTES

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a place before the first byte")
        self._place = start + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._place + size, self._size)
        count = end - self._place
        if count <= 0:
            return b""
        if count > self._free_bytes:
            raise ValueError("the list of files is too long")
        self._free_bytes -= count
        data = self._read_range(self._place, end)
        self._place += len(data)
        return data


def entry_head(read_range: ReadRange, size: int, name: str, head_bytes: int) -> bytes:
    """Return the first bytes of a file in a zip of `size` bytes.

    It is empty if the content is not a zip, is damaged, or lacks the file.
    """
    try:
        with (
            zipfile.ZipFile(_RangeFile(read_range, size)) as archive,
            archive.open(name) as entry,
        ):
            return entry.read(head_bytes)
    except (KeyError, *_DAMAGE_ERRORS):
        return b""
