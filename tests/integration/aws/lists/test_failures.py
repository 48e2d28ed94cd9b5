"""Open failures on DynamoDB: right after replays and crashes at any call, and few calls."""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from punctual.aws.dynamodb.lists.failures import FailureChange
from punctual.aws.dynamodb.lists.job_rows import is_failing_item
from punctual.aws.dynamodb.stream_records import Record
from punctual.domain.errors import Unavailable
from punctual.domain.failures import Acknowledgement, EndedRun, Failure, after_run
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.engine.ports.lists.failures import FailureCounts
from punctual.engine.ports.rows import Detail, JobKey
from punctual.lambdas.status.changes import Changes
from punctual.lambdas.status.failures import FailureWriter
from tests.support.aws.crashing_lists import Crashed, CrashingLists
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import (
    JOB,
    NOON,
    ManualClock,
    a_job_state,
    a_row,
    a_run,
    after,
    an_id,
)

KEY = JobKey("acme", JOB)
CRON = ScheduleKind.CRON
ACKNOWLEDGEMENT = Acknowledgement("ann", NOON, "known")


class Lists(CrashingLists):
    """The writers of list rows and failures."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        super().__init__(aws, clock)
        self.failures = aws.ports.failures
        self._writer = FailureWriter(aws.ports.failures, aws.ports.history)

    def write(self, changes: Sequence[tuple[Record, Changes]]) -> None:
        now = self.clock()
        self._writer.write_changes(changes, self.writer.write_changes(changes, now), now)

    def change(self, *states: JobState | None) -> None:
        for old, new in pairwise(states):
            self.follow([self.stream.of(old, new)])

    def record_run(self, run: Run, error: str = "it broke") -> None:
        self.aws.ports.history.put_runs(
            [a_row(run.run_id, run=run, detail=Detail(error=error, exit_code=3))]
        )

    def open_failures(self, tenant: str = "acme") -> list[Failure]:
        return list(self.failures.page(tenant, 200, None).failures)

    def has_mark(self) -> bool:
        return any(map(is_failing_item, self.aws.rows("lists")))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def lists(clock: ManualClock) -> Iterator[Lists]:
    with moto(clock) as aws:
        yield Lists(aws, clock)


def ended(number: int, status: str = "FAILED", **fields: Any) -> Run:
    """Return a run that ended `number` minutes after noon."""
    at = after(60 * number)
    values = {"token": 3, "scheduled_at": at, "due_at": at, "attempt_at": at, "ended_at": at}
    return a_run(an_id(number), RunStatus(status), **{**values, **fields})


def a_state(version: int, *runs: Run, **fields: Any) -> JobState:
    values: dict[str, Any] = {"kind": CRON, "latest_run_id": an_id(1), "next_at": after(9_000)}
    return a_job_state(version=version, unrecorded=runs, **{**values, **fields})


def test_failure_is_open_until_a_success(lists: Lists) -> None:
    lists.record_run(ended(1), "no space on disk 7\nmore")
    first, second = a_state(1), a_state(2, ended(1))
    lists.change(None, first, second)
    (failure,) = lists.open_failures()
    assert (failure.error, failure.last_at, failure.count) == ("no space on disk 7", after(60), 1)
    assert lists.has_mark()
    third = a_state(3)
    lists.change(second, third, a_state(4, ended(2, "SUCCESS")))
    assert lists.open_failures() == []
    assert not lists.has_mark()


def test_run_that_succeeds_without_an_open_failure_costs_nothing_more(lists: Lists) -> None:
    lists.change(None, a_state(1), a_state(2, ended(1, "SUCCESS")))
    record = lists.stream.of(a_state(3), a_state(4, ended(2, "SUCCESS")))
    assert lists.aws.spend(lambda: lists.follow([record])) == {"BatchGetItem": 1, "UpdateItem": 1}
    assert not [row for row in lists.aws.rows("lists") if "#failures#" in row["pk"]["S"]]


def test_requested_success_of_a_one_time_job_closes_its_failure(lists: Lists) -> None:
    one_time = {"kind": ScheduleKind.IMMEDIATE, "next_at": None}
    failed = a_state(2, ended(1), **one_time, status=JobStatus.COMPLETED, ended_at=after(60))
    lists.change(None, a_state(1, **one_time), failed)
    assert len(lists.open_failures()) == 1
    retried = ended(2, "SUCCESS", trigger=Trigger.RETRY)
    lists.change(failed, a_state(3, **one_time), a_state(4, retried, **one_time))
    assert lists.open_failures() == []


def test_own_success_of_a_one_time_job_closes_the_failure_of_a_requested_run(lists: Lists) -> None:
    one_time: dict[str, Any] = {"kind": ScheduleKind.FUTURE, "latest_run_id": an_id(1)}
    requested = ended(1, trigger=Trigger.RUN_NOW)
    failed, waits = a_state(2, requested, **one_time), a_state(3, **one_time)
    lists.change(None, a_state(1, **one_time), failed, waits)
    assert len(lists.open_failures()) == 1
    lists.change(waits, a_state(4, ended(2, "SUCCESS"), **one_time))
    assert lists.open_failures() == []
    assert not lists.has_mark()


def test_late_write_of_a_mark_changes_no_later_mark(lists: Lists) -> None:
    lists.change(None, a_state(1), a_state(2, ended(1)))
    lists.change(a_state(3), a_state(4, ended(2, "SUCCESS")))
    assert not lists.failures._mark(KEY, 2, has_failures=True)
    assert not lists.has_mark()
    lists.change(a_state(5), a_state(6, ended(3)))
    lists.failures._mark(KEY, 4, has_failures=False)
    assert lists.has_mark()


def test_replay_after_the_closed_row_is_gone_opens_no_failure(
    lists: Lists, clock: ManualClock
) -> None:
    first, failed, later = a_state(1), a_state(2, ended(1)), a_state(3)
    lists.change(None, first, failed)
    lists.change(failed, later, a_state(4, ended(2, "SUCCESS")))
    clock.set(after(2 * 3_600))
    lists.change(first, failed)
    assert lists.open_failures() == []
    assert not lists.has_mark()


def test_cancel_closes_all_failures(lists: Lists) -> None:
    first, second = a_state(1), a_state(2, ended(1))
    lists.change(None, first, second)
    lists.change(second, a_state(3, status=JobStatus.CANCELLED, ended_at=after(90)))
    assert lists.open_failures() == []


def test_failures_expire_with_their_job(lists: Lists, clock: ManualClock) -> None:
    over = a_state(2, ended(1), status=JobStatus.COMPLETED, ended_at=after(60))
    lists.change(None, a_state(1), over)
    assert len(lists.open_failures()) == 1
    clock.set(after(31 * 86_400))
    assert lists.open_failures() == []
    assert lists.failures.counts("acme") == FailureCounts()


def test_end_of_a_recurring_job_lets_its_failures_expire(lists: Lists, clock: ManualClock) -> None:
    failed = a_state(2, ended(1))
    over = a_state(3, status=JobStatus.COMPLETED, ended_at=after(90))
    lists.change(None, a_state(1), failed, over)
    assert len(lists.open_failures()) == 1
    clock.set(after(31 * 86_400))
    assert lists.open_failures() == []


def test_acknowledgement_survives_further_failures(lists: Lists) -> None:
    states = [None, a_state(1), a_state(2, ended(1)), a_state(3), a_state(4, ended(2))]
    lists.change(*states[:3])
    failure_id = lists.open_failures()[0].failure_id
    assert lists.failures.acknowledge("umbrella", failure_id, ACKNOWLEDGEMENT) is None
    known = lists.failures.acknowledge("acme", failure_id, ACKNOWLEDGEMENT)
    assert known is not None
    lists.change(*states[2:])
    (failure,) = lists.open_failures()
    assert (failure.acknowledged, failure.count) == (ACKNOWLEDGEMENT, 2)
    assert lists.failures.find("acme", failure_id) == failure
    assert lists.failures.counts("acme") == FailureCounts(1, 0, after(60), None)
    assert lists.open_failures("umbrella") == []


def test_failures_of_one_job_are_one_read(lists: Lists) -> None:
    for number in range(1, 4):
        runs = [EndedRun(ended(2 * number), "one"), EndedRun(ended(2 * number + 1), "two")]
        lists.failures.apply({JobKey("acme", an_id(number)): [FailureChange(1, runs)]})
    key = JobKey("acme", an_id(2))
    expected = [failure for failure in lists.open_failures() if failure.job_id == key.job_id]
    assert len(expected) == 2
    assert {failure.kind: failure for failure in lists.failures.of_job(key)} == {
        failure.kind: failure for failure in expected
    }
    assert lists.aws.spend(lambda: lists.failures.of_job(key)) == {"BatchGetItem": 1}
    assert lists.failures.of_job(JobKey("other", an_id(2))) == ()


def test_pages_follow_the_order_over_all_slots(lists: Lists) -> None:
    for number in range(1, 24):
        run = ended(number)
        lists.failures.apply(
            {JobKey("acme", an_id(100 + number)): [FailureChange(1, [EndedRun(run, "a")])]}
        )
    shown: list[Failure] = []
    cursor = None
    for _ in range(9):
        page = lists.failures.page("acme", 5, cursor)
        assert len(page.failures) <= 5
        shown += page.failures
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [failure.last_at for failure in shown] == [after(60 * n) for n in range(23, 0, -1)]


@pytest.mark.parametrize("seed", range(25))
def test_failures_are_the_same_after_crashes_and_replays(lists: Lists, seed: int) -> None:
    """Batches repeat after crashes at any call. The stream keeps the order of one job."""
    chance = random.Random(seed)
    states: list[JobState | None] = [None, a_state(1)]
    expected: Sequence[Failure] = []
    for number in range(1, chance.randint(2, 14)):
        run = ended(number, chance.choice(("FAILED", "TIMED_OUT", "SUCCESS", "SKIPPED")))
        error = chance.choice(("a", "b", "row 7"))
        if run.status in (RunStatus.FAILED, RunStatus.TIMED_OUT):
            lists.record_run(run, error)
        expected = after_run(expected, JOB, EndedRun(run, error, 3))
        version = len(states)
        states += [a_state(version, run), a_state(version + 1)]
    records = [lists.stream.of(old, new) for old, new in pairwise(states)]
    start = 0
    while start < len(records):
        size = chance.randint(1, 5)
        for _ in range(chance.choice((1, 1, 2))):
            lists.crash_in = chance.choice((None, 0, 1, 2, 3, 4))
            for _ in range(9):
                try:
                    lists.follow(records[start : start + size])
                    break
                except (Crashed, Unavailable):
                    continue
            lists.crash_in = None
        start += size
    by_kind = {failure.kind: failure for failure in lists.open_failures()}
    assert by_kind == {failure.kind: failure for failure in expected}
    assert lists.has_mark() == bool(expected)


def test_no_failure_is_left_out_where_one_read_is_too_short(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.aws.dynamodb.lists.failures.FAILURE_PAGE_ROWS", 2)
    monkeypatch.setattr("punctual.aws.dynamodb.lists.failures.MAX_FAILURE_READS", 1)
    job_ids = [an_id(100 + number) for number in range(30)]
    for number, job_id in enumerate(job_ids):
        errors = ("a", "b") if number % 3 else ("a",)
        runs = [EndedRun(ended(n + 1), error) for n, error in enumerate(errors)]
        change = FailureChange(1, runs, is_cancelled=number % 5 == 0)
        lists.failures.apply({JobKey("acme", job_id): [change]})
    expected = {
        (job_ids[number], kind)
        for number in range(30)
        if number % 5
        for kind in (("a", "b") if number % 3 else ("a",))
    }
    seen: list[tuple[str, str]] = []
    cursor = None
    for _ in range(100):
        page = lists.failures.page("acme", 4, cursor)
        assert len(page.failures) <= 4
        seen += [(failure.job_id, failure.error) for failure in page.failures]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert cursor is None
    assert len(seen) == len(set(seen))
    assert set(seen) == expected
    assert lists.failures.counts("acme").has_more
