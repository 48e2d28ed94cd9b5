"""The unit of work: what many port calls ask for becomes few row writes and one commit."""

import sqlite3
from types import TracebackType
from typing import Protocol

from punctual.domain.errors import Unavailable
from punctual.node.files.damage import Damage
from punctual.node.files.data_folder import OpenDatabase


class Part(Protocol):
    """One table's share of a unit: what it holds back until the rows are written."""

    def flush(self) -> None:
        """Write what is held back."""

    def keep(self) -> None:
        """All that was written is committed."""

    def drop(self) -> None:
        """Nothing of this unit happened."""


class Transaction:
    """One transaction at a time on one connection, entered by each port call, nested or not.

    1. Parts hold changes back and answer reads from them.
    2. A read that must see rows flushes its part first; the transaction begins with the first
       write, so a unit that only reads what is in memory costs nothing.
    3. Leaving the outermost level writes the rest and commits. Until then nothing is promised.
    4. An error that leaves any level undoes all of it, also where it was caught further out: the
       rows are then not known to be as the parts believe.
    """

    def __init__(self, db: sqlite3.Connection, damage: Damage, database: OpenDatabase) -> None:
        self.db = db
        self._database = database
        self.damage = damage
        self._parts: list[Part] = []
        self._depth = 0
        self._broken = False

    def join(self, part: Part) -> None:
        self._parts.append(part)

    def begin(self) -> None:
        """Before any write."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth:
            self._broken = self._broken or kind is not None
        else:
            self._leave(failed=kind is not None)
        if isinstance(error, sqlite3.Error):
            raise self._unavailable(error) from error

    def _leave(self, failed: bool) -> None:
        broken, self._broken = self._broken, False
        if failed or broken:
            self._undo()
            if not failed:
                raise Unavailable("A write failed: nothing of its transaction was stored.")
            return
        try:
            for part in self._parts:
                part.flush()
            if self.db.in_transaction:
                self._database.check()
                self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            raise self._unavailable(error) from error
        except BaseException:
            self._undo()
            raise
        for part in self._parts:
            part.keep()

    def _undo(self) -> None:
        for part in self._parts:
            part.drop()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def _unavailable(self, error: sqlite3.Error) -> Unavailable:
        return self._database.damaged(error) if is_damage(error) else unavailable(error)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite found that the file is not what it wrote. Extended codes count."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def unavailable(error: sqlite3.Error) -> Unavailable:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return Unavailable("The disk is full: this was not stored. Free some space first.")
    return Unavailable(f"The store does not answer: {error}.")
