"""The embedded adapter: one SQLite file, blobs beside it, and a lock against a second process."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from punctual.domain.run import RunStatus
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log, untold
from punctual.engine.ports.monitor import HealthWarning
from punctual.engine.ports.rows import Key
from punctual.node.clock import wall
from punctual.node.errors import StoreError
from punctual.node.files.blobs import FileBlobs, Place
from punctual.node.files.damage import Damage
from punctual.node.files.data_folder import (
    BLOBS,
    DATABASE,
    GUIDE,
    OpenDatabase,
    check,
    disk_warning,
)
from punctual.node.files.durable import OWNER_FILE, close_to_others, make_folder, sync_folder
from punctual.node.files.folder_lock import FolderLock
from punctual.node.files.orphans import Orphans
from punctual.node.files.write_ahead_log import check_log
from punctual.node.minutes import SqliteMinutes
from punctual.node.sqlite.audit import SqliteAudit
from punctual.node.sqlite.control import SqliteBuckets, SqliteReceipts
from punctual.node.sqlite.counts import JOB, RUN, Counts
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.node.sqlite.feed import SqliteFeed
from punctual.node.sqlite.history import SqliteHistory
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.notifications import SqliteNotifications
from punctual.node.sqlite.purge import Purge
from punctual.node.sqlite.recent_starts import SqliteStarts
from punctual.node.sqlite.schema import connect
from punctual.node.sqlite.timers import SqliteTimers
from punctual.node.sqlite.tokens import SqliteTokens
from punctual.node.sqlite.transaction import Transaction

FILE = DATABASE
TIDY = 5_000  # changed rows between checkpoints


class Store:
    """The stores of the node.

    It belongs to the thread that opened it; other threads may use only `blobs`.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        blobs: FileBlobs,
        lock: FolderLock,
        clock: Clock,
        database: OpenDatabase,
        log: Log = untold,
    ) -> None:
        self.database = database
        self._log = log
        self._full = False
        self._db = db
        self._lock = lock
        self._tidied = 0
        self.damage = Damage(log)
        self._unit = Transaction(db, self.damage, database)
        self._counts = Counts(self._unit)
        self.history = SqliteHistory(self._unit, self._counts)
        bodies = SqliteDefinitions(self._unit)
        self.audit = SqliteAudit(self._unit)
        self.heads = SqliteJobStates(
            self._unit, bodies, self._counts, self.history.held, clock, self.audit
        )
        self.timers = SqliteTimers(self._unit)
        self.buckets = SqliteBuckets(self._unit, clock)
        self.receipts = SqliteReceipts(self._unit)
        self.feed = SqliteFeed(self._unit, clock)
        self.tokens = SqliteTokens(self._unit)
        self.starts = SqliteStarts(self._unit)
        self.notices = SqliteNotifications(self._unit, clock)
        self.minutes = SqliteMinutes(self._unit)
        self.blobs = blobs
        parts = (self.timers, bodies, self.heads, self.history, self.feed, self.audit)
        for part in (*parts, self._counts, self.notices, self.buckets):
            self._unit.join(part)
        self._orphans = Orphans(self._unit, blobs)
        self._purge = Purge(self._unit, self._counts, self.heads, self.history, self.buckets, blobs)

    @classmethod
    def open(cls, folder: Path, clock: Clock = wall, log: Log = untold) -> "Store":
        """Return the store of a folder, which is created if missing.

        `StoreError` says why it cannot be used.
        """
        try:
            make_folder(folder)
            lock = FolderLock(folder)
        except OSError as error:
            raise StoreError(
                f"The data folder {folder} cannot be made: {error.strerror}."
            ) from error
        try:
            for one in close_to_others(folder):
                log("was_open_to_others", path=one.path, had=f"{one.had:04o}", has=f"{one.has:04o}")
            check(folder)
            blobs = FileBlobs(folder / BLOBS)
            check_log(folder / FILE, GUIDE)
            (folder / FILE).touch(OWNER_FILE)  # SQLite gives its other files the same rights
            db = connect(folder / FILE)
            sync_folder(folder)
            database = OpenDatabase(folder / FILE)
            database.opened()
            return cls(db, blobs, lock, clock, database, log)
        except OSError as error:
            lock.release()
            raise StoreError(
                f"The data folder {folder} cannot be used: {error.strerror}."
            ) from error
        except BaseException:
            lock.release()
            raise

    def work(self) -> Transaction:
        """Return the transaction.

        `with store.work():` makes one transaction of all port calls inside.
        """
        return self._unit

    def end_all_leases(self) -> list[Key]:
        """End all leases and return their jobs.

        At a start the lock on the folder proves that no process holds them.
        """
        return self.heads.end_all_leases()

    def count_queued(self, tenant: str) -> int:
        return self.count_runs(tenant).get(RunStatus.QUEUED.value, 0)

    def oldest_queued(self, tenant: str) -> datetime | None:
        return self.heads.oldest_queued(tenant)

    def count_jobs(self, tenant: str) -> Mapping[str, int]:
        return self._count(tenant, JOB)

    def count_runs(self, tenant: str) -> Mapping[str, int]:
        """Return the number of runs by status: live runs, and the rows of the history."""
        return self._count(tenant, RUN)

    def _count(self, tenant: str, kind: str) -> Mapping[str, int]:
        with self._unit:
            self.heads.flush()
            self.history.flush()
            self._counts.flush()
            return self._counts.of(tenant, kind)

    def warnings(self) -> Sequence[HealthWarning]:
        """Return the warnings for the operator."""
        full = disk_warning(self.database.folder)
        return [*self.damage.warnings(), *([] if full is None else [full])]

    def watch_disk(self) -> None:
        """Log that the disk is nearly full, once until it has room again."""
        full = disk_warning(self.database.folder)
        if full is not None and not self._full:
            self._log("disk_nearly_full", text=full.text)
        self._full = full is not None

    def tidy(self) -> None:
        """Checkpoint the write-ahead log while the node is idle.

        Otherwise a commit does it when the log is long, and due runs wait.
        """
        if self._db.total_changes - self._tidied >= TIDY:
            with self._unit:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._tidied = self._db.total_changes

    def purge(self, now: datetime, limit: int) -> bool:
        """Remove some expired rows. Return whether more may be expired."""
        self.watch_disk()
        return self._purge.step(now, limit)

    def remove_orphans(self, after: Place | None, now: datetime) -> tuple[int, Place | None]:
        """Remove some payloads without a row.

        Return how many, and the place to continue from, or None at the end.
        """
        return self._orphans.remove(after, now)

    def close(self) -> None:
        self._db.close()
        self._lock.release()
