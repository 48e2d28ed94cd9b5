"""A disk that can lose power at any call, with the states that a restart could find.

A call that names, renames or removes a file changes the folder in memory. `fsync` of a file brings
its content to the disk, and `fsync` of a folder the names in it.

After a cut the disk has the names of the last sync or those at the cut. A file system may write
names at any time. In both cases a file has the content of its last sync, or none.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Names = dict[str, int]


class Cut(NamedTuple):
    """The disk's files by path (None for a folder), and the promises made by that time."""

    files: tuple[tuple[str, bytes | None], ...]
    promised: Any
    before: str

    def lay_out(self, root: Path) -> Path:
        for name, content in self.files:
            path = root / name
            if content is None:
                path.mkdir(parents=True)
            else:
                path.write_bytes(content)
        return root


class Disk:
    """A watcher of an empty folder. `promise` returns the writer's promises so far.

    Files have numbers of our own, because a file system reuses the inode of a deleted file.
    """

    def __init__(self, root: Path, promise: Callable[[], Any]) -> None:
        self._root = root
        self._promise = promise
        self._numbers: dict[int, int] = {}  # by inode
        self._content: dict[int, bytes] = {}  # of files
        self._names: dict[int, Names] = {}  # of folders
        self._make(root.stat().st_ino, is_folder=True)
        self.cuts: list[Cut] = []

    def cut(self, before: str) -> None:
        """Record the possible disk states if the power fails here."""
        promised = self._promise()
        root = self._numbers[self._root.stat().st_ino]
        for files in (self._as_synced(root, ""), self._as_named(self._root, "")):
            self.cuts.append(Cut(tuple(files), promised, before))

    def _as_synced(self, folder: int, name: str) -> Iterator[tuple[str, bytes | None]]:
        for entry, number in sorted(self._names[folder].items()):
            if number in self._names:
                yield f"{name}{entry}", None
                yield from self._as_synced(number, f"{name}{entry}/")
            else:
                yield f"{name}{entry}", self._content.get(number, b"")

    def _as_named(self, folder: Path, name: str) -> Iterator[tuple[str, bytes | None]]:
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield f"{name}{path.name}", None
                yield from self._as_named(path, f"{name}{path.name}/")
            else:
                number = self._numbers[path.stat().st_ino]
                yield f"{name}{path.name}", self._content.get(number, b"")

    def synced(self, handle: int) -> None:
        status, here = os.fstat(handle), f"/proc/self/fd/{handle}"
        number = self._numbers[status.st_ino]
        if stat.S_ISDIR(status.st_mode):
            entries = list(os.scandir(here))
            self._names[number] = {entry.name: self._numbers[entry.inode()] for entry in entries}
        else:
            self._content[number] = Path(here).read_bytes()

    def register(self, path: Path) -> None:
        self._make(path.stat().st_ino, path.is_dir())

    def _make(self, inode: int, is_folder: bool) -> None:
        number = self._numbers[inode] = len(self._names) + len(self._content) + 1
        if is_folder:
            self._names[number] = {}
        else:
            self._content[number] = b""


@contextmanager
def a_disk(root: Path, promise: Callable[[], Any]) -> Iterator[Disk]:
    disk = Disk(root, promise)
    with pytest.MonkeyPatch.context() as patch:
        _watch(patch, disk)
        yield disk
        disk.cut("the end")


def _watch(patch: pytest.MonkeyPatch, disk: Disk) -> None:
    for name in ("open", "replace", "rename", "unlink", "mkdir"):
        patch.setattr(os, name, _watched(getattr(os, name), name, disk))
    patch.setattr(os, "fsync", _watched(_noted, "fsync", disk))


def _noted(_handle: int) -> None:
    """Skip the real sync, because this object tracks the state of the disk."""


def _watched(call: Callable[..., Any], name: str, disk: Disk) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        makes = name in ("open", "mkdir") and not os.path.exists(arguments[0])
        if name != "open":
            disk.cut(f"{name} {arguments}")
        answer = call(*arguments, **options)
        if makes:
            disk.register(Path(arguments[0]))
        if name == "fsync":
            disk.synced(arguments[0])
        return answer

    return watched
