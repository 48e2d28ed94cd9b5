"""An answer of the change feed shows each job in its newest form, whatever the order of writes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.engine.ports.lists.change_feed import (
    Change,
    ChangeFilters,
    ChangeKind,
    ChangePage,
    JobSummary,
)
from punctual.engine.queries.changes import ChangeQueries
from punctual.engine.queries.slices import finish
from tests.support.builders import JOB, NOON, an_id


class FixedFeed:
    reads_per_answer = 1

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def now(self, tenant: str, now: datetime) -> tuple[str, ...]:
        return ("now",)

    def read(
        self, tenant: str, cursor: tuple[str, ...], filters: ChangeFilters, now: datetime
    ) -> ChangePage:
        return ChangePage(self._changes, ("end",))

    def seconds_to_next_read(self, tenant: str, page: ChangePage, now: datetime) -> int:
        return 0


def job_change(version: int, status: JobStatus, job_id: str = JOB) -> Change:
    summary = JobSummary("cleanup", status, ScheduleKind.CRON, 1, NOON)
    return Change(ChangeKind.JOB, job_id, "", version, NOON, job=summary)


def shown(changes: Sequence[Change]) -> list[tuple[str, int]]:
    queries = ChangeQueries(FixedFeed(changes), cast(Any, None), cast(Any, None))
    since = finish(queries.since("acme", ("begin",), ChangeFilters(), NOON))
    return [(change.job_id, change.version) for change in since.changes]


def test_part_of_a_batch_that_comes_again_hides_no_later_change() -> None:
    other = an_id(2)
    changes = [
        job_change(1, JobStatus.SCHEDULED),
        job_change(1, JobStatus.SCHEDULED, other),
        job_change(2, JobStatus.COMPLETED),
        job_change(1, JobStatus.SCHEDULED),
    ]
    assert shown(changes) == [(other, 1), (JOB, 2)]


def test_change_that_comes_again_is_shown_once() -> None:
    assert shown([job_change(2, JobStatus.PAUSED), job_change(2, JobStatus.PAUSED)]) == [(JOB, 2)]
