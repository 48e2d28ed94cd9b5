"""Blobs as files. Each is written to a temporary name, synced, then renamed."""

import os
import re
from base64 import b32decode, b32encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import count
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.commands.definitions_store import PAYLOADS
from punctual.engine.ports.blobs import Blob
from punctual.node.files.durable import (
    OWNER_FILE,
    OWNER_FOLDER,
    make_folder,
    sync_folder,
    write_durably,
)

Place = tuple[str, str]  # a folder of payloads, and a file in it
_LONGEST_FILE = 240
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
# the form of `output_key` in `run_results`
_OUTPUT = re.compile(r"outputs(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){4}")


class Stored(NamedTuple):
    """A payload's name, and the time at which it was stored."""

    name: str
    stored_at: datetime


class FileBlobs:
    """Stores blobs.

    Safe to use from several threads.

    The name of an output is its path below the folder. Every other file is named by a hash of the
    blob's name. So no name leads out of the folder, is too long for it, or collides with another
    where case is ignored.

    Payloads have a folder of their own and file names that encode the blob's name. So payloads
    without a row can be found.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._payloads = folder / "payloads"
        make_folder(self._payloads)
        self._new = folder / "new"
        self._numbers = count()  # its next() is atomic
        self._folders = Lock()  # prevents the removal of a folder while another is created in it
        make_folder(self._new)
        for unfinished in self._new.iterdir():  # An earlier process was killed while it wrote them.
            unfinished.unlink()

    def put(self, name: str, data: bytes, content_type: str) -> None:  # noqa: ARG002 files have no type
        path = self._path(name)
        new = self._new / str(next(self._numbers))
        with _answering():
            self._make_place(path)
            write_durably(path, data, new)

    def put_many(self, blobs: Sequence[Blob]) -> Sequence[Unavailable | None]:
        return [self._put(blob) for blob in blobs]

    def _put(self, blob: Blob) -> Unavailable | None:
        try:
            self.put(*blob)
        except Unavailable as error:
            return error
        return None

    def open_log(self, name: str) -> "LogFile":
        """Open a blob that grows. It stays open until `LogFile.end` or `LogFile.discard`."""
        path = self._path(name)
        with _answering():
            self._make_place(path)
            return LogFile(path)

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
                path = self._path(name)
                path.unlink(missing_ok=True)
                if _OUTPUT.fullmatch(name):
                    with self._folders:
                        _remove_if_empty(path.parent, path.parent.parent)

    def payloads(self, after: Place | None, most: int) -> tuple[list[Stored], Place | None]:
        """Return some payloads in a fixed order, and the place to continue from.

        It is None at the end.
        """
        place: Place = after or ("", "")
        with _answering():
            for folder in sorted(os.listdir(self._payloads)):
                if folder < place[0]:
                    continue
                behind = place[1] if folder == place[0] else ""
                files = sorted(
                    name for name in os.listdir(self._payloads / folder) if name > behind
                )
                if files:
                    found = [self._stored(folder, file) for file in files[:most]]
                    return [one for one in found if one is not None], (folder, files[:most][-1])
        return [], None

    def _stored(self, folder: str, file: str) -> Stored | None:
        try:
            stored_at = (self._payloads / folder / file).stat().st_mtime
        except FileNotFoundError:
            return None  # removed since the listing
        return Stored(_decoded(file), datetime.fromtimestamp(stored_at, UTC))

    def link(self, name: str, content_type: str) -> str | None:  # noqa: ARG002 no server serves files
        return None

    def _path(self, name: str) -> Path:
        if _OUTPUT.fullmatch(name):
            return self._folder / name
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        if name.startswith(PAYLOADS) and len(coded := _coded(name)) <= _LONGEST_FILE:
            return self._payloads / digest[:2] / coded
        return self._folder / digest[:2] / digest[2:]

    def _make_place(self, path: Path) -> None:
        """Create the file's folders, below `_folder` only.

        A deleted data folder stays deleted.

        A folder that cannot be synced is removed again, so that the next attempt syncs it.
        """
        with self._folders:
            missing = self._missing(path.parent)
            for number, folder in enumerate(missing, start=1):
                folder.mkdir(mode=OWNER_FOLDER)
                if number < len(missing):
                    _sync(folder)
        if missing:  # The run has a folder of its own, so no other thread waits for this sync.
            _sync(path.parent)

    def _missing(self, folder: Path) -> list[Path]:
        """Return the folders to create, the outermost first."""
        missing: list[Path] = []
        while folder != self._folder and not folder.is_dir():
            missing.insert(0, folder)
            folder = folder.parent
        return missing


def _sync(folder: Path) -> None:
    """Sync the name of a new folder to the disk, or remove the folder."""
    try:
        sync_folder(folder.parent)
    except OSError:
        _remove_if_empty(folder)
        raise


def _remove_if_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # it holds files or is gone
            folder.rmdir()


def _coded(name: str) -> str:
    """Return the file name of a payload, in lower case because some file systems ignore case."""
    return b32encode(name.removeprefix(PAYLOADS).encode()).decode().lower().rstrip("=")


def _decoded(file: str) -> str:
    padded = file.upper() + "=" * (-len(file) % 8)
    return PAYLOADS + b32decode(padded).decode()


class LogFile:
    """A log that grows.

    Readers see each write at once, also after the process was killed.

    A power cut may lose writes before `end`. Only the constructor opens files, so no method fails
    for lack of descriptors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = os.open(path.parent, os.O_RDONLY)
        try:
            self._file = os.open(path, _APPENDING, OWNER_FILE)
        except BaseException:
            os.close(self._folder)
            raise

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        with _answering():
            while left:
                left = left[os.write(self._file, left) :]

    def end(self) -> int:
        """Sync the log before a row names it. Return its size. An empty log is removed."""
        try:
            with _answering():
                size = os.fstat(self._file).st_size
                if size:
                    os.fsync(self._file)
                    os.fsync(self._folder)
                else:
                    self._path.unlink(missing_ok=True)
                return size
        finally:
            self._close()

    def discard(self) -> None:
        """Remove the log of an attempt that did not begin."""
        try:
            with _answering():
                self._path.unlink(missing_ok=True)
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._file)
        os.close(self._folder)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"The data folder does not answer: {error.strerror}.") from error
