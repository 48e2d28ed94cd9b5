"""What a start finds in the data folder: whole, new, or without a part that it needs."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from punctual.engine.queries.views import HealthWarning
from punctual.node.sqlite.errors import StoreError, StoreLost

DATABASE = "punctual.db"
BLOBS = "blobs"
GUIDE = "docs/how-to/back-up-and-restore-a-node.md"
SHARE_LEFT = 20  # a twentieth of the disk, at most 5 GiB, is little
MOST_LEFT = 5 * 1024**3
_HEADER = 100  # bytes, by SQLite's file format
_MAGIC = b"SQLite format 3\0"
_WRITTEN_BY_FIRST_START = ("token.key", "webhook.key", "local-token", "groups", "work")


class OpenDatabase:
    """Whether the files that SQLite has open are still those that their names lead to.

    SQLite goes on writing to a file that was deleted, and its commits succeed. So each commit
    asks first; that takes some microseconds.
    """

    def __init__(self, database: Path) -> None:
        self.folder = database.parent
        self._paths = [database, database.with_name(f"{database.name}-wal")]
        self._opened: list[tuple[int, int] | None] | None = None
        self.when_lost: Callable[[StoreLost], None] = _nothing

    def opened(self) -> None:
        """Remember the files as they are now; both are there after the first transaction."""
        self._opened = [_identity(path) for path in self._paths]

    def check(self) -> None:
        """Raise `StoreLost` where one of them is gone."""
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
        """Tell that SQLite found damage, and return what to raise: more writes could lose more."""
        lost = StoreLost(
            f"The database {self._paths[0]} is damaged ({error}): the node ends, since what it "
            f"goes on to write could be lost. Restore it from a backup ({GUIDE})."
        )
        self.when_lost(lost)
        return lost


def disk_warning(
    folder: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
) -> HealthWarning | None:
    """Warn while there is still room to act: on a full disk all writes are answered 503."""
    try:
        found = statvfs(folder)
    except OSError:
        return None  # the next commit says what is wrong
    free = found.f_bavail * found.f_frsize
    if free < min(found.f_blocks * found.f_frsize // SHARE_LEFT, MOST_LEFT):
        text = f"The disk of the data folder has {free >> 20:,} MiB left."
        return HealthWarning("DISK_NEARLY_FULL", text)
    if found.f_files and found.f_favail < found.f_files // SHARE_LEFT:
        text = f"The disk of the data folder has room for {found.f_favail:,} more files."
        return HealthWarning("DISK_NEARLY_FULL", text)
    return None


def _nothing(_error: StoreLost) -> None:
    """Where no server is to end."""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check(folder: Path) -> None:
    """Refuse a folder that has lost its database, or the blobs that its database names.

    A start makes the blobs' folder, then the database, then all else. So what stands beside a
    missing database shows that there was one, and a new one would hide the loss.
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
    """Refuse to begin a database where there was one before."""
    remains = sorted([*left, *_remains(folder)])
    if remains:
        raise StoreError(
            f"The database {folder / DATABASE} {state}, but the folder holds "
            f"{', '.join(remains)} of its node: restore the database from a backup ({GUIDE}), or "
            "move the folder away to begin without any job."
        )


def _remains(folder: Path) -> Iterator[str]:
    """Names of what only a node that had a database leaves."""
    yield from (name for name in _WRITTEN_BY_FIRST_START if (folder / name).exists())
    if (folder / BLOBS).is_dir() and _holds_a_file(folder / BLOBS):
        yield BLOBS


def _holds_a_file(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _check_length(database: Path, size: int) -> None:
    """A file that was cut short, as by a copy that did not end, is found at once.

    Where a write-ahead log stands beside it, the log may hold what the file lacks.
    """
    log = database.with_name(f"{DATABASE}-wal")
    if log.exists() and log.stat().st_size:
        return
    with database.open("rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC):
        return  # SQLite itself says so
    whole = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    counted = header[24:28] == header[92:96]  # else an old SQLite wrote it and the number is stale
    if counted and size < whole:
        raise StoreError(
            f"The database {database} is cut short: it has {size:,} bytes of {whole:,}. "
            f"Restore it from a backup ({GUIDE})."
        )
