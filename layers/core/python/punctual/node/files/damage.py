"""Unreadable rows of the store. Each is logged once, counted, and skipped."""

from collections.abc import Sequence

import msgspec

from punctual.domain.errors import Unreadable
from punctual.engine.ports.log import Log
from punctual.engine.ports.monitor import HealthWarning

# Errors of decoding a damaged value: those of msgspec, and those of plain conversions.
DECODING = (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError)
KNOWN = 10_000  # remembered rows; more rows are not counted
Row = tuple[object, ...]


class Damage:
    """The unreadable rows that this process found since its start."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: set[tuple[str, Row]] = set()
        self.lost_timer = False  # a timer was removed, and its job needs another
        self._problems: Sequence[str] = ()

    def note(self, table: str, row: Row, error: Exception) -> None:
        """Log and count an unreadable row. `row` is its key."""
        if (table, row) not in self._known and len(self._known) < KNOWN:
            self._known.add((table, row))
            named = "/".join(str(part) for part in row)
            self._log("row_unreadable", table=table, row=named, error=type(error).__name__)

    def found(self, problems: Sequence[str]) -> None:
        """Log and keep the problems that a check of the whole database found."""
        self._problems = tuple(problems)
        self._log("database_damaged", problems=self._problems)

    def warnings(self) -> Sequence[HealthWarning]:
        found = []
        if self._problems:
            text = (
                f"The database is damaged: {self._problems[0]}. The log has more "
                "(database_damaged). Restore it from a backup."
            )
            found.append(HealthWarning("DATABASE_DAMAGED", text))
        if count := len(self._known):
            text = (
                f"Rows of the store that cannot be read: {count}. "
                "The log names each (row_unreadable)."
            )
            found.append(HealthWarning("ROWS_UNREADABLE", text))
        return found

    def refuse(self, keys: Sequence[tuple[str, str]]) -> None:
        """Raise `Unreadable` if there are keys.

        Call it outside of a transaction, so that the error rolls back no write.
        """
        if keys:
            raise self.unreadable_job(keys)

    def unreadable_job(self, keys: Sequence[tuple[str, str]]) -> Unreadable:
        """Return the error for operations that need the states of these jobs."""
        jobs = ", ".join(job_id for _, job_id in keys[:3])
        return Unreadable(
            f"The stored state of the job {jobs} cannot be read. It stays as it is until the "
            "store is repaired, or restored from a backup."
        )
