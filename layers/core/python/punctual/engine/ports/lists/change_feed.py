"""The port of the change feed: what has changed for a tenant since a cursor."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.job_state import JobPause, JobStatus, ScheduleKind
from punctual.domain.operations.operation import Operation
from punctual.domain.timestamps import Moment
from punctual.engine.ports.rows import RunRow

CHANGE_RETENTION = timedelta(hours=24)  # a cursor is good for so long
MAX_CHANGES_PER_ANSWER = 500  # an answer ends with the read that reaches it
MAX_SHOWN_RUN_IDS = 100  # live runs of one job in a change


class ChangeKind(StrEnum):
    JOB = "job"
    RUN = "run"
    OPERATION = "operation"


class ChangeFilters(NamedTuple):
    job_id: str = ""
    run_id: str = ""
    kinds: frozenset[ChangeKind] = frozenset()

    def matches(self, kind: ChangeKind, job_id: str, run_id: str) -> bool:
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.job_id or job_id == self.job_id)
            and (not self.run_id or run_id == self.run_id)
        )


class JobSummary(Struct, frozen=True, omit_defaults=True, array_like=True, gc=False):
    """A job in the short form of the feed: as much as a list shows."""

    name: str
    status: JobStatus
    kind: ScheduleKind
    edition: int
    updated_at: Moment
    next_run_at: Moment | None = None
    live_run_ids: tuple[str, ...] = ()
    waiting_count: int = 0
    pause: JobPause | None = None


class Change(NamedTuple):
    """A job, a run or an operation after a change.

    `version` is the version of the job state that the change made. It orders the changes of a run.
    If `is_loaded` is False, the feed holds only the ids: the reader loads the job, or the history
    row of the run. What does not exist any more has no content. An operation has its revision as
    its version, and leaves out its errors.
    """

    kind: ChangeKind
    job_id: str
    run_id: str
    version: int
    at: datetime
    is_loaded: bool = True
    job: JobSummary | None = None
    run: RunRow | None = None
    operation: Operation | None = None


class ChangePage(NamedTuple):
    """Changes in order. `cursor` leads to the changes after them."""

    changes: Sequence[Change]
    cursor: tuple[str, ...]
    has_more: bool = False


class ChangeFeed(Protocol):
    """Changes of the last 24 h. Each change of a job state is in the feed at least once."""

    @property
    def reads_per_answer(self) -> int:
        """Return how often one answer may read, to gather more changes or to find a match."""

    def now(self, tenant: str, now: datetime) -> tuple[str, ...]:
        """Return the cursor of now: every later change of the tenant comes after it."""

    def read(
        self, tenant: str, cursor: tuple[str, ...], filters: ChangeFilters, now: datetime
    ) -> ChangePage | None:
        """Return the changes after the cursor, or None if some of them are gone.

        The page ends early at a bound of changes or bytes, then `has_more` is True. The changes
        of a run come in the order of their versions.
        """

    def seconds_to_next_read(self, tenant: str, page: ChangePage, now: datetime) -> int:
        """Return after how many seconds a client should read again."""
