"""Checks of the data folder at a start: it is complete, new, or lacks a required part."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from punctual.engine.ports.monitor import HealthWarning
from punctual.node.errors import StoreError, StoreLost

DATABASE = "punctual.db"
BLOBS = "blobs"
GUIDE = "docs/how-to/back-up-and-restore-a-node.md"
SHARE_LEFT = 20  # warn below a twentieth of the disk, at most 5 GiB
MOST_LEFT = 5 * 1024**3
_HEADER = 100  # bytes, by SQLite's file format
_MAGIC = b"SQLite format 3\0"
_WRITTEN_BY_FIRST_START = ("token.key", "webhook.key", "local-token", "groups", "work")


class OpenDatabase:
    """Detects that an open file of SQLite was deleted or replaced.

    SQLite continues to write to a deleted file, and its commits succeed. So a check precedes each
    commit, which takes some microseconds.
    """

    def __init__(self, database: Path) -> None:
        self.folder = database.parent
        self._paths = [database, database.with_name(f"{database.name}-wal")]
        self._opened: list[tuple[int, int] | None] | None = None
        self.when_lost: Callable[[StoreLost], None] = _nothing

    def opened(self) -> None:
        """Remember the files as they are now. Both exist after the first transaction."""
        self._opened = [_identity(path) for path in self._paths]

    def check(self) -> None:
        """Raise `StoreLost` if a file is gone or replaced."""
        if self._opened is None:
            return
        for path, opened in zip(self._paths, self._opened, strict=True):
            if opened is not None and _identity(path) != opened:
                error = StoreLost(
                    f"The file {path} was deleted or replaced while the node used it: the node "
                    f"ends, since nothing more can be kept. Restore it from a backup ({GUIDE})."
                )
                self.when_lost(error)
                raise error

    def damaged(self, error: sqlite3.Error) -> StoreLost:
        """Report damage that SQLite found, and return the error to raise.

        More writes could lose more data.
        """
        lost = StoreLost(
            f"The database {self._paths[0]} is damaged ({error}): the node ends, since what it "
            f"goes on to write could be lost. Restore it from a backup ({GUIDE})."
        )
        self.when_lost(lost)
        return lost


def disk_warning(
    folder: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
) -> HealthWarning | None:
    """Return a warning while there is still room to act.

    On a full disk all writes are answered with 503.
    """
    try:
        found = statvfs(folder)
    except OSError:
        return None  # The next commit reports the problem.
    free = found.f_bavail * found.f_frsize
    if free < min(found.f_blocks * found.f_frsize // SHARE_LEFT, MOST_LEFT):
        text = f"The disk of the data folder has {free >> 20:,} MiB left."
        return HealthWarning("DISK_NEARLY_FULL", text)
    if found.f_files and found.f_favail < found.f_files // SHARE_LEFT:
        text = f"The disk of the data folder has room for {found.f_favail:,} more files."
        return HealthWarning("DISK_NEARLY_FULL", text)
    return None


def _nothing(_error: StoreLost) -> None:
    """Do nothing: the default if there is no server to end."""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check(folder: Path) -> None:
    """Raise `StoreError` if the folder lacks its database, or the blobs that the database names.

    A start creates the blobs' folder, then the database, then all else. So other files beside a
    missing database show that there was one. A new database would hide the loss.
    """
    database = folder / DATABASE
    size = database.stat().st_size if database.exists() else 0
    if size == 0:
        log = folder / f"{DATABASE}-wal"
        left = [log.name] if log.exists() and log.stat().st_size else []
        refuse_new(folder, "is empty" if database.exists() else "is missing", left)
    elif not (folder / BLOBS).is_dir():
        raise StoreError(
            f"The folder {folder / BLOBS} is missing beside its database: restore it from a "
            f"backup ({GUIDE}), or make an empty one to go on without large payloads and outputs."
        )
    else:
        _check_length(database, size)


def refuse_new(folder: Path, state: str, left: Sequence[str] = ()) -> None:
    """Raise `StoreError` if a new database would replace one that existed before."""
    remains = sorted([*left, *_remains(folder)])
    if remains:
        raise StoreError(
            f"The database {folder / DATABASE} {state}, but the folder holds "
            f"{', '.join(remains)} of its node: restore the database from a backup ({GUIDE}), or "
            "move the folder away to begin without any job."
        )


def _remains(folder: Path) -> Iterator[str]:
    """Yield the names of files that only a node with a database leaves."""
    yield from (name for name in _WRITTEN_BY_FIRST_START if (folder / name).exists())
    if (folder / BLOBS).is_dir() and _holds_a_file(folder / BLOBS):
        yield BLOBS


def _holds_a_file(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _check_length(database: Path, size: int) -> None:
    """Raise `StoreError` if the file is cut short, for example by an incomplete copy.

    If a write-ahead log exists beside it, the log may hold what the file lacks.
    """
    log = database.with_name(f"{DATABASE}-wal")
    if log.exists() and log.stat().st_size:
        return
    with database.open("rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC):
        return  # SQLite itself reports this.
    whole = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    # otherwise an old SQLite wrote it and the number is stale
    counted = header[24:28] == header[92:96]
    if counted and size < whole:
        raise StoreError(
            f"The database {database} is cut short: it has {size:,} bytes of {whole:,}. "
            f"Restore it from a backup ({GUIDE})."
        )
