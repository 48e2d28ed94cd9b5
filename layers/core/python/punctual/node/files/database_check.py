"""SQLite's own check of the whole database, in the background, once after each start.

It takes 2 s for a million runs if the file is in memory. Otherwise it takes as long as the disk
needs to read the file. So no start waits for it.
"""

import os
import sqlite3
import sys
import threading
from pathlib import Path

from punctual.engine.ports.log import Log
from punctual.node.files.damage import Damage
from punctual.node.sqlite.transaction import is_damage

LOWEST_PRIORITY = 19
MAX_SHOWN_PROBLEMS = 3  # of the problems that SQLite lists


class DatabaseCheck:
    """A thread of low priority with a read-only connection of its own."""

    def __init__(self, database: Path, damage: Damage, log: Log) -> None:
        self._database = database
        self._damage = damage
        self._log = log
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="database-check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Interrupt the check. Its read would keep the write-ahead log from being removed."""
        with self._lock:
            self._stopped = True
            if self._db is not None:
                self._db.interrupt()
        self._thread.join()

    def _run(self) -> None:
        # On Linux the priority of a single thread can be set by its id.
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        try:
            problems = self._problems()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                if not self._stopped:
                    self._log("database_not_checked", error=str(error))
                return
            problems = [str(error)]
        if problems:
            self._damage.report_problems(problems)

    def _problems(self) -> list[str]:
        uri = f"{self._database.absolute().as_uri()}?mode=ro"
        db = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            with self._lock:
                if self._stopped:
                    return []
                self._db = db
            rows = db.execute(f"PRAGMA quick_check({MAX_SHOWN_PROBLEMS})").fetchall()
            return [str(text) for (text,) in rows if text != "ok"]
        finally:
            with self._lock:
                self._db = None
            db.close()
