"""Open failures: opened by failed runs, closed by later successes, and shown once on a page."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.failures import Acknowledgement, Failure
from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.lists.failures import FailureCounts
from punctual.engine.ports.rows import Detail
from tests.support.builders import (
    JOB,
    NOON,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_id,
)
from tests.support.list_plays.list_worlds import ListWorld

OTHER_JOB = an_id(900)
BY_ANN = Acknowledgement("ann", NOON, "known")


class Job:
    """A job with runs that end one after the other."""

    def __init__(self, lists: ListWorld, job_id: str = JOB, tenant: str = "acme") -> None:
        self._lists = lists
        self._values: dict[str, Any] = {"kind": ScheduleKind.CRON, "next_at": after(9_000)}
        self._job_id, self._tenant = job_id, tenant
        self._version = 0
        lists.put_definitions([a_definition_row(job_id, tenant=tenant)])
        self.change()

    def change(self, *runs: Run, error: str = "", **fields: Any) -> None:
        self._version += 1
        values = {"latest_run_id": an_id(1), **self._values, **fields}
        state = a_job_state(
            self._job_id, tenant=self._tenant, version=self._version, unrecorded=runs, **values
        )
        detail = Detail(error=error)
        rows = [
            a_row(run.run_id, run=run, detail=detail, tenant=self._tenant, job_id=self._job_id)
            for run in runs
        ]
        self._lists.change(state, rows)

    def end(
        self, number: int, status: str = "FAILED", error: str = "it broke", **fields: Any
    ) -> None:
        """End a run that began and ended `number` minutes after noon."""
        at = after(60 * number)
        self._lists.clock.now = max(self._lists.clock.now, at)
        values = {"token": 3, "scheduled_at": at, "due_at": at, "attempt_at": at, "ended_at": at}
        run_id = an_id(number + (0 if self._job_id == JOB else 300))
        run = a_run(run_id, RunStatus(status), **{**values, **fields})
        self.change(run, error="" if status == "SUCCESS" else error)
        self.change()  # the state forgets the run


def open_failures(lists: ListWorld, limit: int = 50, tenant: str = "acme") -> list[Failure]:
    failures: list[Failure] = []
    cursor: tuple[str, ...] | None = None
    for _ in range(100):
        page = lists.failures.page(tenant, limit, cursor)
        assert len(page.failures) <= limit
        failures += page.failures
        cursor = page.next_cursor
        if cursor is None:
            return failures
    raise AssertionError("the pages do not end")


def test_failed_runs_of_one_kind_are_one_failure(lists: ListWorld) -> None:
    job = Job(lists)
    job.end(1, error="no space on disk 7\nmore")
    job.end(2, error="no space on disk 8")
    (failure,) = open_failures(lists)
    assert (failure.job_id, failure.error, failure.count) == (JOB, "no space on disk 8", 2)
    assert (failure.first_at, failure.last_at) == (after(60), after(120))
    assert (failure.last_run_id, failure.status) == (an_id(2), RunStatus.FAILED)
    assert lists.failures.find("acme", failure.failure_id) == failure


def test_success_closes_all_kinds(lists: ListWorld) -> None:
    job = Job(lists)
    job.end(1, error="a")
    job.end(2, "TIMED_OUT", error="")
    assert [failure.error for failure in open_failures(lists)] == ["timed out", "a"]
    job.end(3, "SUCCESS")
    assert open_failures(lists) == []
    job.end(4, error="a")
    assert [failure.count for failure in open_failures(lists)] == [1]


def test_success_of_a_run_that_began_before_closes_nothing(lists: ListWorld) -> None:
    job = Job(lists)
    job.end(5)
    job.end(6, "SUCCESS", attempt_at=after(60))
    assert len(open_failures(lists)) == 1


@pytest.mark.parametrize("status", ["SKIPPED", "MISSED", "CANCELLED"])
def test_run_that_did_not_end_by_itself_changes_nothing(lists: ListWorld, status: str) -> None:
    job = Job(lists)
    job.end(1, status, token=0, attempt_at=None)
    assert open_failures(lists) == []
    job.end(2)
    job.end(3, status, token=0, attempt_at=None)
    assert len(open_failures(lists)) == 1


def test_cancel_closes_all(lists: ListWorld) -> None:
    job = Job(lists)
    job.end(1)
    job.change(status=JobStatus.CANCELLED, ended_at=after(90))
    assert open_failures(lists) == []


def test_acknowledgement_goes_with_its_failure(lists: ListWorld) -> None:
    job = Job(lists)
    job.end(1)
    (failure,) = open_failures(lists)
    assert lists.failures.acknowledge("umbrella", failure.failure_id, BY_ANN) is None
    assert lists.failures.acknowledge("acme", f"{JOB}-aaaaaaaaaaaa", BY_ANN) is None
    known = lists.failures.acknowledge("acme", failure.failure_id, BY_ANN)
    assert known is not None
    assert known.acknowledged == BY_ANN
    job.end(2)
    assert [(f.acknowledged, f.count) for f in open_failures(lists)] == [(BY_ANN, 2)]
    assert lists.failures.counts("acme") == FailureCounts(1, 0, after(60), None)
    job.end(3, "SUCCESS")
    job.end(4)
    assert [f.acknowledged for f in open_failures(lists)] == [None]
    assert lists.failures.counts("acme") == FailureCounts(0, 1, None, after(240))


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_pages_show_each_failure_once_newest_first(lists: ListWorld, limit: int) -> None:
    first, second = Job(lists), Job(lists, OTHER_JOB)
    for number in range(1, 8):
        (first if number % 2 else second).end(number, error="abcdefgh"[number])
    failures = open_failures(lists, limit)
    assert [failure.last_at for failure in failures] == [after(60 * n) for n in range(7, 0, -1)]


def test_tenants_stay_apart(lists: ListWorld) -> None:
    Job(lists).end(1)
    assert open_failures(lists, tenant="acme2") == []
    (failure,) = open_failures(lists)
    assert lists.failures.find("acme2", failure.failure_id) is None
    assert lists.failures.counts("acme2") == FailureCounts()


def test_failure_stays_open_over_days(lists: ListWorld) -> None:
    Job(lists).end(1)
    lists.clock.now += timedelta(days=20)
    assert len(open_failures(lists)) == 1
