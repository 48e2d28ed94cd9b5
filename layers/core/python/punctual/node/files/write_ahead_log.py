"""Checks SQLite's write-ahead log after a crash: every acknowledged commit must be readable.

SQLite reads the log up to the first damaged frame and drops the rest silently. Each commit is
synced before the next one writes. So if a frame of the same log follows a commit frame, that commit
was acknowledged. All frames up to it must be readable.
"""

import sqlite3
import sys
from pathlib import Path

from punctual.node.files.data_folder import StoreError

_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
# In the header of SQLite's index of the log, in native byte order.
_LAST_FRAME_FIELD = slice(16, 20)


def check_log(database: Path, guide: str) -> None:
    """Raise `StoreError` if SQLite would drop acknowledged changes of the log."""
    log = database.with_name(f"{database.name}-wal")
    if not log.exists() or log.stat().st_size <= _LOG_HEADER_BYTES:
        return
    acknowledged = acknowledged_frames(log)
    if not acknowledged:
        return
    readable = _readable_frames(database)
    if readable < acknowledged:
        raise StoreError(
            f"The write-ahead log {log} is damaged: {acknowledged - readable} of {acknowledged} "
            f"frames that were committed cannot be read. Restore a backup, or go on without them "
            f"({guide})."
        )


def acknowledged_frames(log: Path) -> int:
    """Return how many frames end with the last commit that another frame follows."""
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER_BYTES)
        page_bytes, salts = int.from_bytes(header[8:12], "big"), header[16:24]
        acknowledged = last_commit = frame_number = 0
        while len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
            frame_number += 1
            if frame[8:16] == salts:
                acknowledged = last_commit or acknowledged
                last_commit = frame_number if any(frame[4:8]) else last_commit
            file.seek(page_bytes, 1)
    return acknowledged


def _readable_frames(database: Path) -> int:
    """Return how many frames SQLite can read.

    The connection is read-only, because closing a writable one would drop the rest.
    """
    db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        index_header = database.with_name(f"{database.name}-shm").read_bytes()[:_LOG_HEADER_BYTES]
        return int.from_bytes(index_header[_LAST_FRAME_FIELD], sys.byteorder)
    finally:
        db.close()
