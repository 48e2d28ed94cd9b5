"""The embedded adapter: one SQLite file, blobs beside it, and a lock against a second process."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from punctual.domain.run import RunStatus
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log, no_log
from punctual.engine.ports.monitor import HealthWarning
from punctual.engine.ports.rows import JobKey
from punctual.node.clock import wall
from punctual.node.files.blobs import FileBlobs, PayloadCursor
from punctual.node.files.damage import Damage
from punctual.node.files.data_folder import (
    BLOBS,
    DATABASE,
    GUIDE,
    OpenDatabase,
    StoreError,
    check_data_folder,
    disk_warning,
)
from punctual.node.files.durable import OWNER_FILE, close_to_others, make_folder, sync_folder
from punctual.node.files.folder_lock import FolderLock
from punctual.node.files.orphans import Orphans
from punctual.node.files.secret_key import SecretCipher
from punctual.node.files.uploads import UploadLinks
from punctual.node.files.write_ahead_log import check_log
from punctual.node.monitor import SqliteMinutes
from punctual.node.sqlite.artifacts import SqliteArtifacts
from punctual.node.sqlite.audit import SqliteAudit
from punctual.node.sqlite.control import SqlitePartitions, SqliteReceipts
from punctual.node.sqlite.counts import JOB_KIND, RUN_KIND, Counts
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.node.sqlite.feed import SqliteFeed
from punctual.node.sqlite.history import SqliteHistory
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.lists.failures import SqliteFailures
from punctual.node.sqlite.lists.job_index import SqliteJobIndex
from punctual.node.sqlite.lists.job_names import SqliteJobNames
from punctual.node.sqlite.lists.operations import SqliteOperations
from punctual.node.sqlite.notifications import SqliteNotifications
from punctual.node.sqlite.purge import Purge
from punctual.node.sqlite.recent_starts import SqliteStarts
from punctual.node.sqlite.schema import connect
from punctual.node.sqlite.secrets import SecretReader, SqliteSecrets
from punctual.node.sqlite.timers import SqliteTimers
from punctual.node.sqlite.tokens import SqliteTokens
from punctual.node.sqlite.transaction import Transaction

CHECKPOINT_ROWS = 5_000  # changed rows between checkpoints


class Store:
    """The stores of the node.

    It belongs to the thread that opened it; other threads may use only `blobs` and `find_secret`.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        blobs: FileBlobs,
        lock: FolderLock,
        clock: Clock,
        database: OpenDatabase,
        log: Log = no_log,
    ) -> None:
        self.database = database
        self._log = log
        self._is_disk_warning_logged = False
        self._db = db
        self._lock = lock
        self._checkpointed_changes = 0
        self.damage = Damage(log)
        self._transaction = Transaction(db, self.damage, database)
        self._counts = Counts(self._transaction)
        self.failures = SqliteFailures(self._transaction)
        self.changes = SqliteChangeFeed(self._transaction, clock)
        self.history = SqliteHistory(self._transaction, self._counts, self.failures, self.changes)
        definitions = SqliteDefinitions(self._transaction)
        self.audit = SqliteAudit(self._transaction)
        self.job_states = self._build_job_states(definitions, clock)
        self.job_index = SqliteJobIndex(self._transaction, self.job_states.flush)
        self.changes.version_of = self.job_states.version_of
        self.changes.flush_others = self.job_states.flush
        self.timers = SqliteTimers(self._transaction)
        self.partitions = SqlitePartitions(self._transaction, clock)
        self.receipts = SqliteReceipts(self._transaction)
        self.feed = SqliteFeed(self._transaction, clock)
        self.tokens = SqliteTokens(self._transaction)
        cipher = SecretCipher(database.folder)
        self.secrets = SqliteSecrets(self._transaction, cipher)
        self._secret_reader = SecretReader(database.folder / DATABASE, cipher)
        self.find_secret = self._secret_reader.find  # any thread may call it
        self.artifacts = SqliteArtifacts(self._transaction, clock)
        self.operations = SqliteOperations(self._transaction, clock, self.changes)
        self.job_names = SqliteJobNames(self._transaction)
        self.starts = SqliteStarts(self._transaction)
        self.notifications = SqliteNotifications(self._transaction, clock)
        self.minutes = SqliteMinutes(self._transaction)
        self.blobs = blobs
        self._join_transaction(definitions)
        self._orphans = Orphans(self._transaction, blobs)
        self._purge = self._build_purge()

    def _build_job_states(self, definitions: SqliteDefinitions, clock: Clock) -> SqliteJobStates:
        return SqliteJobStates(
            self._transaction,
            definitions,
            self._counts,
            self.history.pending_runs,
            clock,
            self.audit,
            self.failures,
            self.changes,
        )

    def _build_purge(self) -> Purge:
        return Purge(
            self._transaction,
            self._counts,
            self.job_states,
            self.history,
            self.failures,
            self.changes,
            self.partitions,
            self.blobs,
        )

    def _join_transaction(self, definitions: SqliteDefinitions) -> None:
        """Let each part write its changes before a commit, and forget them after a rollback."""
        transaction = self._transaction
        transaction.add_writer(self.timers.pending, self.timers.flush)
        # Before the definitions, which it finds fastest while they are not written yet.
        transaction.add_writer(self.job_states.pending, self.job_states.flush)
        transaction.add_writer(definitions.pending, definitions.flush)
        transaction.add_writer(self.history.pending_runs, self.history.flush)
        transaction.add_writer(self.history.pending_attempts, self.history.flush)
        transaction.add_writer(self.feed.pending, self.feed.flush)
        transaction.add_writer(self.audit.pending, self.audit.flush)
        for pending in self.changes.all_pending:
            transaction.add_writer(pending, self.changes.flush)
        # The last one, because other parts count while they flush.
        transaction.add_writer(self._counts.changes, self._counts.flush)
        for cache in (definitions, self.job_states, self.failures, self.changes):
            transaction.on_commit(cache.on_commit)
        parts = (self.timers, definitions, self.job_states, self.history, self.feed, self.audit)
        others = (self._counts, self.notifications, self.partitions, self.failures, self.changes)
        for part in (*parts, *others):
            transaction.on_rollback(part.on_rollback)

    @classmethod
    def open(
        cls,
        folder: Path,
        clock: Clock = wall,
        log: Log = no_log,
        upload_key: bytes | None = None,
    ) -> "Store":
        """Return the store of a folder, which is created if missing.

        `StoreError` says why it cannot be used.
        """
        try:
            make_folder(folder)
            lock = FolderLock(folder)
        except OSError as error:
            raise StoreError(
                f"The data folder {folder} cannot be created: {error.strerror}."
            ) from error
        try:
            for restricted in close_to_others(folder):
                log(
                    "was_open_to_others",
                    path=restricted.path,
                    had=f"{restricted.old_mode:04o}",
                    has=f"{restricted.new_mode:04o}",
                )
            check_data_folder(folder)
            blobs = FileBlobs(folder / BLOBS, UploadLinks(clock, upload_key))
            check_log(folder / DATABASE, GUIDE)
            (folder / DATABASE).touch(OWNER_FILE)  # SQLite gives its other files the same rights
            db = connect(folder / DATABASE)
            sync_folder(folder)
            database = OpenDatabase(folder / DATABASE)
            database.remember_files()
            return cls(db, blobs, lock, clock, database, log)
        except OSError as error:
            lock.release()
            raise StoreError(
                f"The data folder {folder} cannot be used: {error.strerror}."
            ) from error
        except BaseException:
            lock.release()
            raise

    def transaction(self) -> Transaction:
        """Return the transaction.

        `with store.transaction():` makes one transaction of all port calls inside.
        """
        return self._transaction

    def end_all_leases(self) -> list[JobKey]:
        """End all leases and return their jobs.

        At a start the lock on the folder proves that no process holds them.
        """
        return self.job_states.end_all_leases()

    def count_queued(self, tenant: str) -> int:
        return self.count_runs(tenant).get(RunStatus.QUEUED.value, 0)

    def oldest_queued(self, tenant: str) -> datetime | None:
        return self.job_states.oldest_queued(tenant)

    def count_jobs(self, tenant: str) -> Mapping[str, int]:
        return self._count(tenant, JOB_KIND)

    def count_runs(self, tenant: str) -> Mapping[str, int]:
        """Return the number of runs by status: live runs, and the rows of the history."""
        return self._count(tenant, RUN_KIND)

    def _count(self, tenant: str, kind: str) -> Mapping[str, int]:
        with self._transaction:
            self.job_states.flush()
            self.history.flush()
            self._counts.flush()
            return self._counts.by_status(tenant, kind)

    def warnings(self) -> Sequence[HealthWarning]:
        """Return the warnings for the operator."""
        warning = disk_warning(self.database.folder)
        return [*self.damage.warnings(), *([] if warning is None else [warning])]

    def watch_disk(self) -> None:
        """Log that the disk is nearly full, once until it has room again."""
        warning = disk_warning(self.database.folder)
        if warning is not None and not self._is_disk_warning_logged:
            self._log("disk_nearly_full", text=warning.text)
        self._is_disk_warning_logged = warning is not None

    def checkpoint(self) -> None:
        """Checkpoint the write-ahead log while the node is idle.

        Otherwise a commit does it when the log is long, and due runs wait.
        """
        if self._db.total_changes - self._checkpointed_changes >= CHECKPOINT_ROWS:
            with self._transaction:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._checkpointed_changes = self._db.total_changes

    def purge(self, now: datetime, limit: int) -> bool:
        """Remove some expired rows. Return whether more may be expired."""
        self.watch_disk()
        return self._purge.step(now, limit)

    def remove_orphans(
        self, cursor: PayloadCursor | None, now: datetime
    ) -> tuple[int, PayloadCursor | None]:
        """Remove some payloads without a row.

        Return how many, and the place to continue from, or None at the end.
        """
        return self._orphans.remove(cursor, now)

    def close(self) -> None:
        self._secret_reader.close()
        self._db.close()
        self._lock.release()
