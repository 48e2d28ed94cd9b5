"""A request stalls before its change, while the run of an equal request starts and ends."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET

from punctual.domain.run import RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from tests.support.builders import NOON
from tests.support.deployed.drivers.executors import Executors, executors

IDEMPOTENCY = ("key", "fingerprint of the body")


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as driver:
        yield driver


def a_job(world: Executors) -> JobKey:
    start = (NOON - timedelta(hours=5)).isoformat()
    return world.submit(schedule_type="INTERVAL", interval_seconds=3600, start_time=start)


def runs(world: Executors, job: JobKey) -> list[RunView]:
    return list(finish(world.search.runs(*job, RunFilters(), 100, None)).items)


def run_all(world: Executors, job: JobKey) -> None:
    """Run all queued runs, and apply changes until the job state holds none of them."""
    while records := world.records():
        assert world.invoke(records) == []
    world.jobs.pause(*job)
    world.jobs.resume(*job)
    state = world.aws.ports.job_states.load([job])[job].state
    assert (state.runs, state.wait_queue, state.unrecorded) == ((), (), ())


def call_before_next_change(
    world: Executors, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]
) -> None:
    """Call `action` before the next change reads its job state."""
    applier: Any = world.jobs._applier
    apply = applier.apply

    def delayed(*args: Any) -> Any:
        monkeypatch.setattr(applier, "apply", apply)
        action()
        return apply(*args)

    monkeypatch.setattr(applier, "apply", delayed)


def assert_no_more_runs(world: Executors, number: int) -> None:
    """Deliver the messages that are left. None of them starts a run."""
    while records := world.records():
        assert world.invoke(records) == []
    assert len(world.task.ran) == number


def test_requested_run_that_a_twin_finished_is_not_started_again(
    world: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(world)
    first: list[RunView] = []

    def twin() -> None:
        first.append(world.jobs.run_now(*job, None, *IDEMPOTENCY))
        run_all(world, job)

    call_before_next_change(world, monkeypatch, twin)
    late = world.jobs.run_now(*job, None, *IDEMPOTENCY)
    assert (late.run.run_id, late.run.status) == (first[0].run.run_id, RunStatus.SUCCESS)
    assert_no_more_runs(world, 1)
    assert len(runs(world, job)) == 1


def test_retry_that_a_twin_finished_is_not_started_again(
    world: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(world)
    run_id = world.jobs.run_now(*job).run.run_id
    run_all(world, job)

    def twin() -> None:
        finish(world.jobs.retry(*job, run_id, UNSET, *IDEMPOTENCY))
        run_all(world, job)

    call_before_next_change(world, monkeypatch, twin)
    assert (
        finish(world.jobs.retry(*job, run_id, UNSET, *IDEMPOTENCY)).run.status is RunStatus.SUCCESS
    )
    assert_no_more_runs(world, 2)
    assert len(runs(world, job)) == 2


def test_backfilled_time_that_a_twin_finished_is_not_run_again(
    world: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(world)
    interval = (NOON - timedelta(hours=4), NOON - timedelta(hours=1))

    def twin() -> None:
        assert len(finish(world.jobs.backfill(*job, *interval, False))) == 3
        run_all(world, job)

    call_before_next_change(world, monkeypatch, twin)
    finish(world.jobs.backfill(*job, *interval, False))
    assert_no_more_runs(world, 3)
    views = runs(world, job)
    assert [view.run.status for view in views] == [RunStatus.SUCCESS] * 3
