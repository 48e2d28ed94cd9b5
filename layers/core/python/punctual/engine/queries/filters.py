"""What lists are asked for; and, of runs, which ids cannot have it: those are not read."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from punctual.domain.durations import RECEIPT
from punctual.domain.identifiers import EPOCH, sortable_id
from punctual.domain.job_state import JobState
from punctual.domain.run import NOT_RUN, Run, RunStatus, Trigger
from punctual.engine.ports.rows import DefinitionRow

# An order has its id from when it was first asked for, and its time from when it was carried out:
# with an Idempotency-Key there may be a day between the two. The rest is for clocks.
ASKED_BEFORE = RECEIPT + timedelta(hours=1)
SKEW = timedelta(seconds=10)
_INSTANT = timedelta(milliseconds=1)
_IN_BULK = NOT_RUN | {RunStatus.CANCELLED}  # what one entry may say of many occurrences
_ORDERED = frozenset({Trigger.RUN_NOW, Trigger.RETRY, Trigger.BACKFILL})


class JobFilters(NamedTuple):
    status: frozenset[str] = frozenset()
    schedule_type: str = ""
    name_prefix: str = ""
    created_by: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def admit(self, head: JobState, body: DefinitionRow) -> bool:
        return (
            (not self.status or head.state in self.status)
            and (not self.schedule_type or head.kind == self.schedule_type)
            and body.name.startswith(self.name_prefix)
            and (not self.created_by or body.created_by == self.created_by)
            and all(body.tags.get(key) == value for key, value in self.tags)
        )


class By(StrEnum):
    """Which time of a run `start` and `end` mean."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


class RunFilters(NamedTuple):
    status: frozenset[str] = frozenset()
    trigger: str = ""
    start: datetime | None = None
    end: datetime | None = None
    by: By = By.SCHEDULED

    def admit(self, run: Run) -> bool:
        return (
            (not self.status or run.status in self.status)
            and (not self.trigger or run.trigger == self.trigger)
            and self._admits_time(run)
        )

    def _admits_time(self, run: Run) -> bool:
        if self.start is None and self.end is None:
            return True
        first: datetime | None = run.scheduled_at
        last: datetime | None = _reaches(run)
        if self.by is not By.SCHEDULED:
            first = last = run.started_at if self.by is By.STARTED else run.ended_at
        if first is None or last is None:
            return False  # it has no such time
        return (self.start is None or last >= self.start) and (self.end is None or first < self.end)

    @property
    def is_by_id(self) -> bool:
        """Whether the times asked for are near those in the ids, by which runs are filed."""
        return self.by is By.SCHEDULED or self.start is None

    @property
    def top(self) -> str | None:
        """No run with this id or a later one passes.

        An id's time is an occurrence's own, and when an order was first asked for, which is never
        long after the time it has. A retry has the time of what it repeats, however old. No run
        starts or ends before the time of its id.
        """
        later = self.by is not By.SCHEDULED or self.trigger in (
            *(Trigger.SCHEDULE, Trigger.BACKFILL, Trigger.RUN_NOW),
        )
        if self.end is None or not later or not EPOCH < self.end < _LAST:
            return None
        return sortable_id(self.end + SKEW + _INSTANT, bytes(10))

    @property
    def bottom(self) -> str | None:
        """No run of this id or an earlier one passes, unless as an entry for many.

        A run may start and end long after the time of its id, so those times have no such bound.
        """
        if self.by is not By.SCHEDULED or self.start is None or self.start < EPOCH + ASKED_BEFORE:
            return None
        return sortable_id(self.start - ASKED_BEFORE, bytes(10))

    @property
    def single(self) -> bool:
        """Whether all that passes is of one occurrence: an entry for many begins at any time."""
        return self.trigger in _ORDERED or bool(self.status and not self.status & _IN_BULK)

    def passed(self, runs: Iterable[Run]) -> bool:
        """Whether, of the one job that these are of, no entry before them reaches to the start.

        What a schedule came to is recorded in its order, each entry behind the one before it.
        """
        start = self.start
        return (
            self.by is By.SCHEDULED
            and start is not None
            and any(run.trigger is Trigger.SCHEDULE and _reaches(run) < start for run in runs)
        )


_LAST = datetime.max.replace(tzinfo=EPOCH.tzinfo) - timedelta(days=1)


def _reaches(run: Run) -> datetime:
    return run.last_at or run.scheduled_at
