"""Unreadable rows of the store. Each is logged once, counted, and skipped."""

from collections.abc import Sequence

import msgspec

from punctual.domain.errors import Unreadable
from punctual.engine.ports.log import Log
from punctual.engine.ports.monitor import HealthWarning

# Errors of decoding a damaged value: those of msgspec, and those of plain conversions.
DECODING_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError)
MAX_COUNTED_DAMAGED_ROWS = 10_000  # remembered rows; more rows are not counted
DamagedRowKey = tuple[object, ...]


class Damage:
    """The unreadable rows that this process found since its start."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._damaged_rows: set[tuple[str, DamagedRowKey]] = set()
        self.has_lost_timer = False  # a timer was removed, and its job needs another
        self._problems: Sequence[str] = ()

    def note(self, table: str, row_key: DamagedRowKey, error: Exception) -> None:
        """Log and count an unreadable row. `row_key` is its key."""
        if (table, row_key) not in self._damaged_rows and len(
            self._damaged_rows
        ) < MAX_COUNTED_DAMAGED_ROWS:
            self._damaged_rows.add((table, row_key))
            row_name = "/".join(str(part) for part in row_key)
            self._log("row_unreadable", table=table, row=row_name, error=type(error).__name__)

    def report_problems(self, problems: Sequence[str]) -> None:
        """Log and keep the problems that a check of the whole database found."""
        self._problems = tuple(problems)
        self._log("database_damaged", problems=self._problems)

    def warnings(self) -> Sequence[HealthWarning]:
        warnings = []
        if self._problems:
            text = (
                f"The database is damaged: {self._problems[0]}. The log has more "
                "(database_damaged). Restore it from a backup."
            )
            warnings.append(HealthWarning("DATABASE_DAMAGED", text))
        if count := len(self._damaged_rows):
            text = (
                f"Rows of the store that cannot be read: {count}. "
                "The log names each (row_unreadable)."
            )
            warnings.append(HealthWarning("ROWS_UNREADABLE", text))
        return warnings

    def raise_if_unreadable(self, keys: Sequence[tuple[str, str]]) -> None:
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
