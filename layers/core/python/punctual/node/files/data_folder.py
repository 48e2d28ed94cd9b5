"""Checks of the data folder, and the errors that stop a node.

At a start the folder is complete, new, or lacks a required part.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from punctual.domain.errors import Unavailable
from punctual.engine.ports.monitor import HealthWarning

DATABASE = "punctual.db"
BLOBS = "blobs"
GUIDE = "docs/how-to/back-up-and-restore-a-node.md"
DISK_WARNING_DIVISOR = 20  # warn below a twentieth of the disk, at most 5 GiB
DISK_WARNING_MAX_BYTES = 5 * 1024**3
_DATABASE_HEADER_BYTES = 100  # bytes, by SQLite's file format
_DATABASE_MAGIC = b"SQLite format 3\0"
_FIRST_START_FILES = (
    *("token.key", "webhook.key", "secrets.key"),
    *("local-token", "groups", "work"),
)


class StoreError(Unavailable):
    """The data folder cannot be used in its present state. The message says what to do."""


class StoreLost(StoreError):
    """The database was deleted, replaced or damaged while the node runs. The node has to end."""


class OpenDatabase:
    """Detects that an open file of SQLite was deleted or replaced.

    SQLite continues to write to a deleted file, and its commits succeed. So a check precedes each
    commit, which takes some microseconds.
    """

    def __init__(self, database: Path) -> None:
        self.folder = database.parent
        self._paths = [database, database.with_name(f"{database.name}-wal")]
        self._identities: list[tuple[int, int] | None] | None = None
        self.on_lost: Callable[[StoreLost], None] = _ignore_loss

    def remember_files(self) -> None:
        """Remember the files as they are now. Both exist after the first transaction."""
        self._identities = [_file_identity(path) for path in self._paths]

    def check(self) -> None:
        """Raise `StoreLost` if a file is gone or replaced."""
        if self._identities is None:
            return
        for path, identity in zip(self._paths, self._identities, strict=True):
            if identity is not None and _file_identity(path) != identity:
                error = StoreLost(
                    f"The file {path} was deleted or replaced while the node used it: the node "
                    f"ends, since it can store nothing more. Restore it from a backup ({GUIDE})."
                )
                self.on_lost(error)
                raise error

    def report_damage(self, error: sqlite3.Error) -> StoreLost:
        """Report damage that SQLite found, and return the error to raise.

        More writes could lose more data.
        """
        store_lost = StoreLost(
            f"The database {self._paths[0]} is damaged ({error}): the node ends, since what it "
            f"goes on to write could be lost. Restore it from a backup ({GUIDE})."
        )
        self.on_lost(store_lost)
        return store_lost


def disk_warning(
    folder: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
) -> HealthWarning | None:
    """Return a warning while there is still room to act.

    On a full disk all writes are answered with 503.
    """
    try:
        disk = statvfs(folder)
    except OSError:
        return None  # The next commit reports the problem.
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < min(
        disk.f_blocks * disk.f_frsize // DISK_WARNING_DIVISOR, DISK_WARNING_MAX_BYTES
    ):
        text = f"The disk of the data folder has {free_bytes >> 20:,} MiB left."
        return HealthWarning("DISK_NEARLY_FULL", text)
    if disk.f_files and disk.f_favail < disk.f_files // DISK_WARNING_DIVISOR:
        text = f"The disk of the data folder has room for {disk.f_favail:,} more files."
        return HealthWarning("DISK_NEARLY_FULL", text)
    return None


def _ignore_loss(_error: StoreLost) -> None:
    """Do nothing: the default if there is no server to end."""


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_data_folder(folder: Path) -> None:
    """Raise `StoreError` if the folder lacks its database, or the blobs that the database names.

    A start creates the blobs' folder, then the database, then all else. So other files beside a
    missing database show that there was one. A new database would hide the loss.
    """
    database = folder / DATABASE
    size = database.stat().st_size if database.exists() else 0
    if size == 0:
        write_ahead_log = folder / f"{DATABASE}-wal"
        unsaved_files = (
            [write_ahead_log.name]
            if write_ahead_log.exists() and write_ahead_log.stat().st_size
            else []
        )
        check_no_former_database(
            folder, "is empty" if database.exists() else "is missing", unsaved_files
        )
    elif not (folder / BLOBS).is_dir():
        raise StoreError(
            f"The folder {folder / BLOBS} is missing beside its database: restore it from a "
            f"backup ({GUIDE}), or make an empty one to go on without large payloads and outputs."
        )
    else:
        _check_length(database, size)


def check_no_former_database(folder: Path, problem: str, other_files: Sequence[str] = ()) -> None:
    """Raise `StoreError` if a new database would replace one that existed before."""
    former_files = sorted([*other_files, *_node_files(folder)])
    if former_files:
        raise StoreError(
            f"The database {folder / DATABASE} {problem}, but the folder holds "
            f"{', '.join(former_files)} of its node: restore the database from a backup "
            f"({GUIDE}), or move the folder away to begin without any job."
        )


def _node_files(folder: Path) -> Iterator[str]:
    """Yield the names of files that only a node with a database leaves."""
    yield from (name for name in _FIRST_START_FILES if (folder / name).exists())
    if (folder / BLOBS).is_dir() and _contains_file(folder / BLOBS):
        yield BLOBS


def _contains_file(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _check_length(database: Path, size: int) -> None:
    """Raise `StoreError` if the file is cut short, for example by an incomplete copy.

    If a write-ahead log exists beside it, the log may hold what the file lacks.
    """
    write_ahead_log = database.with_name(f"{DATABASE}-wal")
    if write_ahead_log.exists() and write_ahead_log.stat().st_size:
        return
    with database.open("rb") as file:
        header = file.read(_DATABASE_HEADER_BYTES)
    if not header.startswith(_DATABASE_MAGIC):
        return  # SQLite itself reports this.
    expected_size = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    # otherwise an old SQLite wrote it and the number is stale
    has_valid_size = header[24:28] == header[92:96]
    if has_valid_size and size < expected_size:
        raise StoreError(
            f"The database {database} is cut short: it has {size:,} bytes of {expected_size:,}. "
            f"Restore it from a backup ({GUIDE})."
        )
