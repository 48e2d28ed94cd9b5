"""Filters of runs, and the range of run ids that a list must read for them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from punctual.domain.durations import RECEIPT_RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.domain.run import NOT_RUN_STATUSES, Run, RunStatus, Trigger
from punctual.domain.utc import EPOCH, MILLISECOND
from punctual.engine.ports.rows import JobLabel

# A start request gets its id from the time of the first request. Its run gets the time of the
# execution. With an Idempotency-Key a day may lie between them. The hour covers clocks that differ.
MAX_REQUEST_DELAY = RECEIPT_RETENTION + timedelta(hours=1)
MAX_CLOCK_SKEW = timedelta(seconds=10)
_BULK_STATUSES = NOT_RUN_STATUSES | {RunStatus.CANCELLED}  # statuses of bulk entries
_REQUEST_TRIGGERS = frozenset({Trigger.RUN_NOW, Trigger.RETRY, Trigger.BACKFILL})


class TimeField(StrEnum):
    """The time of a run that `start` and `end` refer to."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


class RunFilters(NamedTuple):
    status: frozenset[str] = frozenset()
    trigger: str = ""
    start: datetime | None = None
    end: datetime | None = None
    time_field: TimeField = TimeField.SCHEDULED
    reasons: frozenset[str] = frozenset()
    min_duration: timedelta | None = None
    max_duration: timedelta | None = None  # inclusive, as the minimum is
    job_name: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def matches(self, run: Run, label: JobLabel | None = None) -> bool:
        """Return whether a run of a job with this label passes. Without one it has no name."""
        return (
            (not self.status or run.status in self.status)
            and (not self.trigger or run.trigger == self.trigger)
            and (not self.reasons or run.reason in self.reasons)
            and self._matches_duration(run)
            and (not self.is_by_job or self._matches_label(label))
            and self._matches_time(run)
        )

    @property
    def is_by_job(self) -> bool:
        """Return whether the label of a job decides."""
        return bool(self.job_name or self.tags)

    @property
    def is_by_duration(self) -> bool:
        return self.min_duration is not None or self.max_duration is not None

    def _matches_duration(self, run: Run) -> bool:
        if not self.is_by_duration:
            return True
        duration = run.duration
        return (
            duration is not None
            and (self.min_duration is None or duration >= self.min_duration)
            and (self.max_duration is None or duration <= self.max_duration)
        )

    def _matches_label(self, label: JobLabel | None) -> bool:
        return (
            label is not None
            and (not self.job_name or label.name == self.job_name)
            and all(label.tags.get(key) == value for key, value in self.tags)
        )

    def _matches_time(self, run: Run) -> bool:
        if self.start is None and self.end is None:
            return True
        first: datetime | None = run.scheduled_at
        last: datetime | None = _last_scheduled_at(run)
        if self.time_field is not TimeField.SCHEDULED:
            first = last = run.started_at if self.time_field is TimeField.STARTED else run.ended_at
        if first is None or last is None:
            return False  # the run has no such time
        return (self.start is None or last >= self.start) and (self.end is None or first < self.end)

    @property
    def is_by_id(self) -> bool:
        """Return whether the filter's times are close to the times in the run ids."""
        return self.time_field is TimeField.SCHEDULED or self.start is None

    @property
    def id_upper_bound(self) -> str | None:
        """Return an id. No run with this id or a later one passes.

        An id holds the time of an occurrence or of the first start request. That time is never
        long after the scheduled time of the run. A retry keeps the scheduled time of the run it
        repeats, which may be far in the past. No run starts or ends before the time of its id.
        """
        has_upper_bound = self.time_field is not TimeField.SCHEDULED or self.trigger in (
            *(Trigger.SCHEDULE, Trigger.BACKFILL, Trigger.RUN_NOW),
        )
        if self.end is None or not has_upper_bound or not EPOCH < self.end < _LATEST_TIME:
            return None
        return sortable_id(self.end + MAX_CLOCK_SKEW + MILLISECOND, bytes(10))

    @property
    def id_lower_bound(self) -> str | None:
        """Return an id. At or below it only bulk entries pass.

        Start and end of a run may lie long after the time of its id, so they have no lower bound.
        """
        if (
            self.time_field is not TimeField.SCHEDULED
            or self.start is None
            or self.start < EPOCH + MAX_REQUEST_DELAY
        ):
            return None
        return sortable_id(self.start - MAX_REQUEST_DELAY, bytes(10))

    @property
    def excludes_bulk(self) -> bool:
        """Return whether only runs of one occurrence pass. Bulk entries begin at any time."""
        return (
            self.trigger in _REQUEST_TRIGGERS
            or self.is_by_duration
            or bool(self.status and not self.status & _BULK_STATUSES)
        )

    def is_past_range(self, runs: Iterable[Run]) -> bool:
        """Return whether no earlier entry of the job reaches the start of the range.

        All `runs` belong to one job. Scheduled outcomes are recorded in order, without overlap.
        """
        start = self.start
        return (
            self.time_field is TimeField.SCHEDULED
            and start is not None
            and any(
                run.trigger is Trigger.SCHEDULE and _last_scheduled_at(run) < start for run in runs
            )
        )


_LATEST_TIME = datetime.max.replace(tzinfo=EPOCH.tzinfo) - timedelta(days=1)


def _last_scheduled_at(run: Run) -> datetime:
    return run.last_at or run.scheduled_at
