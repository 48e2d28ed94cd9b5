"""Operations on the node: what they reach, their progress, cancels, failures and restarts."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from punctual.domain.errors import Invalid, LimitExceeded, NotFound, Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.operation import Operation, OperationAction, OperationStatus
from punctual.engine.operations.actions import ActedItems, OperationActions
from punctual.engine.operations.commands import BulkRequest
from punctual.engine.operations.matching import BulkFilter
from punctual.engine.ports.audit_log import Actor, AuditFilters
from punctual.engine.ports.lists.job_index import JobFilters
from punctual.engine.ports.lists.job_names import NameKey
from punctual.engine.ports.lists.operations import OperationKey
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.queries.slices import SlicedWork, finish
from punctual.node.background import bulk_operations
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

HOURLY = {"schedule_type": "CRON", "cron_expression": "0 * * * *"}
DATA_JOBS = BulkFilter(JobFilters(tags=(("team", "data"),)))


def begin(
    world: World, action: OperationAction, wanted: BulkFilter = DATA_JOBS, **fields: Any
) -> Operation:
    request = BulkRequest(action, wanted, {"tag": ["team:data"]}, **fields)
    actor = Actor("ada", request_id=f"{action}-{world.clock.now}")
    operation: Operation = world.do(
        lambda: finish(world.node.operations.begin(T, "ada", request, actor))
    )
    return operation


def read(world: World, operation: Operation) -> Operation:
    stored: Operation = world.do(
        lambda: world.node.operations.queries.load(T, operation.operation_id)
    )
    return stored


def run_to_end(world: World, operation: Operation, seconds: float = 60) -> Operation:
    world.until((world.clock.now - NOON).total_seconds() + seconds)
    ended = read(world, operation)
    assert not ended.is_running
    return ended


def submit_jobs(world: World, count: int, team: str = "data", prefix: str = "") -> list[str]:
    return [
        world.submit(name=f"{prefix}{team} {number}", tags={"team": team}, **HOURLY)
        for number in range(count)
    ]


def statuses(world: World, jobs: list[str]) -> Mapping[JobStatus, int]:
    return Counter(
        world.do(lambda job=job: world.node.search.job(T, job)).state.status for job in jobs
    )


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_operations, "SLICE_ITEMS", 4)


def test_pause_reaches_what_matched_when_it_began(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs, others = submit_jobs(world, 10), submit_jobs(world, 3, "web")
        operation = begin(
            world, OperationAction.PAUSE, until=NOON + timedelta(hours=5), note="a move"
        )
        later = submit_jobs(world, 1, prefix="later ")
        assert (operation.status, operation.matched) == (OperationStatus.RUNNING, 10)
        ended = run_to_end(world, operation)
        assert (ended.status, ended.done, ended.failed) == (OperationStatus.DONE, 10, 0)
        assert statuses(world, jobs) == {JobStatus.PAUSED: 10}
        assert statuses(world, [*others, *later]) == {JobStatus.SCHEDULED: 4}
        pause = world.do(lambda: world.node.search.job(T, jobs[0])).state.pause
        assert pause is not None
        assert (pause.note, pause.by, pause.operation_id) == (
            "a move",
            "ada",
            operation.operation_id,
        )


def test_resume_reaches_only_what_one_operation_paused(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 6)
        world.do(lambda: world.node.jobs.pause(T, jobs[0]))
        pause = run_to_end(world, begin(world, OperationAction.PAUSE))
        assert pause.matched == 5
        wanted = DATA_JOBS._replace(paused_by=pause.operation_id)
        resume = run_to_end(world, begin(world, OperationAction.RESUME, wanted))
        assert (resume.matched, resume.done) == (5, 5)
        assert statuses(world, jobs) == {JobStatus.SCHEDULED: 5, JobStatus.PAUSED: 1}


def test_cancelled_operation_leaves_the_rest(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 12)
        operation = begin(world, OperationAction.CANCEL)
        world.node.step()
        stopped = world.do(
            lambda: world.node.operations.cancel(T, operation.operation_id, Actor("ada"))
        )
        assert (stopped.status, stopped.done) == (OperationStatus.CANCELLED, 4)
        world.until(60)
        assert read(world, operation).done == 4
        assert statuses(world, jobs) == {JobStatus.CANCELLED: 4, JobStatus.SCHEDULED: 8}
        again = world.do(
            lambda: world.node.operations.cancel(T, operation.operation_id, Actor("ada"))
        )
        assert again == stopped


def test_cancelled_jobs_give_up_their_names(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 3)
        run_to_end(world, begin(world, OperationAction.CANCEL))
        names = [NameKey(T, f"data {number}") for number in range(3)]
        assert world.do(lambda: world.store.job_names.find(names)) == {}
        assert statuses(world, jobs) == {JobStatus.CANCELLED: 3}


def test_each_refused_job_is_named(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 6)
        operation = begin(world, OperationAction.PAUSE)
        world.do(lambda: world.node.jobs.cancel(T, jobs[2]))
        ended = run_to_end(world, operation)
        assert (ended.done, ended.failed) == (5, 1)
        (error,) = ended.errors
        assert (error.job_id, error.code) == (jobs[2], "CONFLICT")
        assert error.message == "The job is CANCELLED: this is no longer possible."


@pytest.mark.parametrize("failing_slice", [0, 1, 2])
def test_slice_that_is_rolled_back_starts_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_slice: int
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 10)
        operation = begin(world, OperationAction.RUN_NOW, payload={"n": 1})
        swap, calls = world.store.operations.swap, iter(range(100))

        def swap_or_fail(changed: Operation) -> bool:
            if next(calls) == failing_slice:
                raise Unavailable("The disk is full.")
            return swap(changed)

        monkeypatch.setattr(world.store.operations, "swap", swap_or_fail)
        ended = run_to_end(world, operation)
        assert (ended.done, ended.failed) == (10, 0)
        assert "operation_waits" in world.events
        for job in jobs:
            (view,) = world.runs(job)
            assert view.run.has_own_payload


@pytest.mark.parametrize("slices_before", range(4))
def test_operation_continues_after_a_restart(tmp_path: Path, slices_before: int) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as first:
        jobs = submit_jobs(first, 14)
        operation = begin(first, OperationAction.RUN_NOW, payload=UNSET)
        for _ in range(slices_before):
            clock.advance(timedelta(milliseconds=5))
            first.node.step()
        assert read(first, operation).done == 4 * slices_before
    with a_world(tmp_path, clock) as second:
        ended = run_to_end(second, operation)
        assert (ended.status, ended.done) == (OperationStatus.DONE, 14)
        assert [len(second.runs(job)) for job in jobs] == [1] * 14


def test_repeated_slice_changes_nothing_more(tmp_path: Path) -> None:
    """A crash between the changes and the record of the progress repeats the slice on AWS."""
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = submit_jobs(world, 3)
        operation = begin(world, OperationAction.RUN_NOW)
        runner = world.node._bulk._runner
        key = OperationKey(T, operation.operation_id)
        items = world.store.operations.items(key, 0, 10)
        request = world.store.operations.load_request(key)
        for _ in range(2):
            world.do(lambda: runner._actions.act(operation, request, items))
        run_to_end(world, operation)
        assert [len(world.runs(job)) for job in jobs] == [1] * 3
        filters = AuditFilters(action="run.order")
        page = world.do(lambda: world.store.audit.page(T, filters, 50, None, world.clock.now))
        assert len(page.entries) == 3


def test_failing_operation_delays_no_other_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 6)
        failing = begin(world, OperationAction.RUN_NOW)
        world.clock.advance(timedelta(milliseconds=1))
        other = begin(world, OperationAction.PAUSE)
        act = OperationActions.act

        def act_or_fail(actions: OperationActions, operation: Operation, *more: Any) -> ActedItems:
            if operation.operation_id == failing.operation_id:
                raise Unavailable("The job's definition cannot be read from the store.")
            return act(actions, operation, *more)

        monkeypatch.setattr(OperationActions, "act", act_or_fail)
        world.until(2)
        assert (read(world, other).status, read(world, other).done) == (OperationStatus.DONE, 6)
        assert read(world, failing).is_running
        ended = run_to_end(world, failing, 600)
        assert (ended.done, ended.failed) == (0, 6)
        assert {error.code for error in ended.errors} == {"UNAVAILABLE"}


def test_simultaneous_requests_with_one_key_begin_one_operation(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 3)
        request = BulkRequest(OperationAction.PAUSE, DATA_JOBS, {"tag": ["team:data"]})
        works = [
            SlicedWork(world.node.operations.begin(T, "ada", request, Actor("ada"), "key", "print"))
            for _ in range(2)
        ]
        for work in works:
            world.do(lambda work=work: work.run_slice(0))
        for work in works:
            while not work.results:
                world.do(work.run_slice)
        first, second = (work.results[0] for work in works)
        assert first.operation_id == second.operation_id
        operations, _ = world.do(lambda: world.node.operations.queries.page(T, 10, None))
        assert len(operations) == 1


def test_tenant_has_at_most_20_running_operations(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 1)
        for _ in range(20):
            begin(world, OperationAction.PAUSE)
        with pytest.raises(LimitExceeded, match="has 20 running operations"):
            begin(world, OperationAction.PAUSE)


def test_audit_names_the_operation_and_its_changes(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 1)
        run_to_end(world, begin(world, OperationAction.PAUSE, note="a move"))
        page = world.do(
            lambda: world.store.audit.page(T, AuditFilters(), 50, None, world.clock.now)
        )
        by_action = {entry.note.action: entry.note.after for entry in page.entries}
        assert by_action["operation.begin"]["matched"] == 1
        assert by_action["job.pause"]["note"] == "a move"
        assert (
            by_action["job.pause"]["operation_id"] == by_action["operation.begin"]["operation_id"]
        )


def test_retry_takes_only_failures_that_nothing_followed(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        task = {"type": "http", "url": "http://127.0.0.1:9/"}
        fields = {"task": task, "max_retries": 0, "payload": "fail"}
        world.gate.open.set()
        jobs = [world.submit(name=f"job {number}", **fields) for number in range(3)]
        world.node.step()
        for _ in jobs:  # the workers may finish one after another
            if {status for job in jobs for status in world.statuses(job)} != {"FAILED"}:
                world.settle()
        assert {world.statuses(job)[0] for job in jobs} == {"FAILED"}
        (failed,) = world.runs(jobs[0])
        world.do(lambda: finish(world.node.jobs.retry(T, jobs[0], failed.run.run_id)))
        wanted = BulkFilter(JobFilters(), RunFilters(), latest_only=True)
        operation = begin(world, OperationAction.RETRY, wanted)
        assert operation.matched == 2
        ended = run_to_end(world, operation)
        assert (ended.done, ended.failed) == (2, 0)
        retried = [view for job in jobs[1:] for view in world.runs(job) if view.run.retried_from]
        assert len(retried) == 2


def test_operation_without_a_match_is_done(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        operation = begin(world, OperationAction.PAUSE)
        assert (operation.status, operation.matched) == (OperationStatus.DONE, 0)


def test_too_many_matches_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.engine.operations.matching.MAX_OPERATION_JOBS", 3)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 4)
        with pytest.raises(Invalid, match="more than 3 jobs"):
            begin(world, OperationAction.PAUSE)


def test_operations_are_kept_for_seven_days(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_jobs(world, 1)
        operation = run_to_end(world, begin(world, OperationAction.PAUSE))
        assert world.do(lambda: world.node.operations.queries.page(T, 10, None)) == (
            [operation],
            None,
        )
        assert world.do(lambda: world.node.operations.queries.page("other", 10, None)) == ([], None)
        world.clock.set(NOON + timedelta(days=7))
        with pytest.raises(NotFound):
            read(world, operation)
