"""Blobs as files: written beside their place, flushed, then renamed into it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from pathlib import Path

from punctual.domain.errors import Unavailable
from punctual.engine.ports import Blob


class FileBlobs:
    """Safe to use from several threads. A file is named by a hash of the blob's name, so that no
    name leads out of the folder, is too long for it, or differs from another in case only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._new = folder / "new"
        self._numbers = count()  # its next() is atomic
        self._new.mkdir(parents=True, exist_ok=True)
        for unfinished in self._new.iterdir():  # what a predecessor was writing when it was killed
            unfinished.unlink()

    def put(self, name: str, data: bytes, content_type: str) -> None:  # noqa: ARG002 files have none
        path = self._path(name)
        new = self._new / str(next(self._numbers))
        with _answering():
            self._make_place(path)
            try:
                _write(new, data)
                new.rename(path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)

    def put_many(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            self.put(*blob)

    def append(self, name: str, data: bytes) -> None:
        """For a log that grows: seen at once, and there after the process is killed."""
        path = self._path(name)
        with _answering():
            self._make_place(path)
            with path.open("ab", buffering=0) as file:
                file.write(data)

    def size(self, name: str) -> int:
        """0 where there is none."""
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            return 0

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        with _answering():
            try:
                with self._path(name).open("rb") as file:
                    file.seek(start)
                    return file.read() if end is None else file.read(max(0, end - start))
            except FileNotFoundError:
                return None

    def delete(self, names: Sequence[str]) -> None:
        with _answering():
            for name in names:
                self._path(name).unlink(missing_ok=True)

    def link(self, name: str, content_type: str) -> str | None:  # noqa: ARG002 nobody else serves files
        return None

    def _path(self, name: str) -> Path:
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        return self._folder / digest[:2] / digest[2:]

    def _make_place(self, path: Path) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            _sync_folder(self._folder)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"The data folder does not answer: {error.strerror}.") from error
