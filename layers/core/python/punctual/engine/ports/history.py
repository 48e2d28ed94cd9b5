"""The history rows of runs and attempts that ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import (
    AttemptRow,
    Detail,
    JobKey,
    RunKey,
    RunRow,
)


class RecentRun(NamedTuple):
    """An ended run, as the list of jobs shows it."""

    run_id: str
    status: RunStatus
    scheduled_at: datetime
    duration: timedelta | None


def recent_run_of(run: Run) -> RecentRun:
    return RecentRun(run.run_id, run.status, run.scheduled_at, run.duration)


class History(Protocol):
    """History rows. Expired rows are never returned, even while they are stored.

    Reads are strongly consistent.
    """

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        """Write run rows. Idempotent by (tenant, job, run id)."""

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        """Write attempt rows. Idempotent by (tenant, job, run id, number, token, lost)."""

    def put_results(self, rows: Sequence[AttemptRow]) -> None:
        """Store the results of ended runs until their run rows are written. Idempotent."""

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """Return the result that the holder of the run's last token stored with `put_results`."""

    def recorded_keys(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        """Return the keys that have a run row."""

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]: ...

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        """Return the attempts of a run, by number and token."""

    def page(
        self, key: JobKey, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Return runs of a job, newest first, with `after < run_id < before` (each may be None)."""

    def recent_runs(
        self, keys: Sequence[JobKey], limit: int, now: datetime
    ) -> Mapping[JobKey, Sequence[RecentRun]]:
        """Return the newest ended runs of each job by run id, at most `limit` of each."""


class HistoryPage(NamedTuple):
    """Rows of all jobs, newest first, and the position that the next page starts below.

    It may hold few rows, or none, because one page reads a bounded number. `before` is None at the
    end.
    """

    rows: Sequence[RunRow]
    before: tuple[str, str] | None


class ListedHistory(History, Protocol):
    """A history that also lists the rows of all jobs. The node has one."""

    def page_all(
        self,
        tenant: str,
        filters: RunFilters,
        before: tuple[str, str] | None,
        limit: int,
        now: datetime,
    ) -> HistoryPage:
        """Return runs of a tenant older than `before`, newest (run_id, job_id) first.

        A run that fails a filter may be left out. The caller filters the others.
        """
