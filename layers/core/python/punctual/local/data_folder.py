"""What a start finds in the data folder: whole, new, or without a part that it needs."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from punctual.local.errors import StoreError

DATABASE = "punctual.db"
BLOBS = "blobs"
GUIDE = "docs/how-to/back-up-and-restore-a-node.md"
_HEADER = 100  # bytes, by SQLite's file format
_MAGIC = b"SQLite format 3\0"
_WRITTEN_BY_FIRST_START = ("token.key", "webhook.key", "local-token", "groups", "work")


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
