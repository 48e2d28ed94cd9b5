"""The transaction: many port calls become few row writes and one commit."""

import sqlite3
from collections.abc import Callable, Sized
from types import TracebackType

from punctual.domain.errors import Unavailable
from punctual.node.files.damage import Damage
from punctual.node.files.data_folder import OpenDatabase


class Transaction:
    """One transaction at a time on one connection.

    Each port call enters it, nested or not.

    1. Parts hold changes and answer reads from them.
    2. A read that must see rows flushes its part first. The SQLite transaction begins with the
       first write, so reads from memory cost nothing.
    3. The exit of the outermost level writes all other changes and commits. Nothing is
       acknowledged before that.
    4. An error at the exit of any level rolls back everything, also if an outer level caught it.
       The rows may then differ from what the parts hold.
    """

    def __init__(self, db: sqlite3.Connection, damage: Damage, database: OpenDatabase) -> None:
        self.db = db
        self._database = database
        self.damage = damage
        self._writers: list[tuple[Sized, Callable[[], None]]] = []
        self._commit_listeners: list[Callable[[], None]] = []
        self._rollback_listeners: list[Callable[[], None]] = []
        self._depth = 0
        self._has_failed = False

    def add_writer(self, pending: Sized, flush: Callable[[], None]) -> None:
        """Call `flush` before each commit if `pending` holds changes. The order of calls stays."""
        self._writers.append((pending, flush))

    def on_commit(self, listener: Callable[[], None]) -> None:
        self._commit_listeners.append(listener)

    def on_rollback(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each rollback. It forgets all changes of the transaction."""
        self._rollback_listeners.append(listener)

    def begin(self) -> None:
        """Begin the SQLite transaction if none is open. Call it before any write."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth:
            self._has_failed = self._has_failed or error_type is not None
        else:
            self._end(failed=error_type is not None)
        if isinstance(error, sqlite3.Error):
            raise self._error_for(error) from error

    def _end(self, failed: bool) -> None:
        has_failed, self._has_failed = self._has_failed, False
        if failed or has_failed:
            self._roll_back()
            if not failed:
                raise Unavailable("A write failed: nothing of its transaction was stored.")
            return
        try:
            for pending, flush in self._writers:
                if pending:
                    flush()
            if self.db.in_transaction:
                self._database.check()
                self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._error_for(error) from error
        except BaseException:
            self._roll_back()
            raise
        for accept in self._commit_listeners:
            accept()

    def _roll_back(self) -> None:
        for forget in self._rollback_listeners:
            forget()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def _error_for(self, error: sqlite3.Error) -> Unavailable:
        return self._database.report_damage(error) if is_damage(error) else store_unavailable(error)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite found that the file is damaged. Extended error codes count."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def store_unavailable(error: sqlite3.Error) -> Unavailable:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return Unavailable("The disk is full: this was not stored. Free some space first.")
    return Unavailable(f"The store does not answer: {error}.")
