"""A request stalls between its key and its order, while its twin's run lives its whole life."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.jobs import RunFilters
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from punctual.node.clock import ManualClock
from tests.integration.aws.test_way import Deployment
from tests.support.aws.moto_adapter import moto
from tests.support.builders import NOON

KEY = ("twin", "same body")


@pytest.fixture
def aws() -> Iterator[Deployment]:
    clock = ManualClock(NOON)
    with moto(clock) as made:
        yield Deployment(made, clock)


def a_job(aws: Deployment) -> JobKey:
    begun = (NOON - timedelta(hours=5)).isoformat()
    view = aws.submit(schedule_type="INTERVAL", interval_seconds=3600, start_time=begun)
    return JobKey(view.state.tenant, view.state.job_id)


def runs(aws: Deployment, job: JobKey) -> list[RunView]:
    return list(finish(aws.search.runs(*job, RunFilters(), 100, None)).items)


def live_on(aws: Deployment, job: JobKey) -> None:
    """What stands queued runs and ends, and leaves the head with what is done next."""
    while aws.execute():
        pass
    aws.jobs.pause(*job)
    aws.jobs.resume(*job)
    head = aws.aws.ports.job_states.load([job])[job].state
    assert (head.runs, head.wait_queue, head.unrecorded) == ((), (), ())


def stalled(
    aws: Deployment, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]
) -> None:
    """Before the next change of a head reads it, all this happens."""
    steps: Any = aws.jobs._changes
    apply = steps.apply

    def later(*asked: Any) -> Any:
        monkeypatch.setattr(steps, "apply", apply)
        meanwhile()
        return apply(*asked)

    monkeypatch.setattr(steps, "apply", later)


def test_a_run_that_a_twin_ordered_and_that_is_over_is_not_made_again(
    aws: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(aws)
    first: list[RunView] = []

    def twin() -> None:
        first.append(aws.jobs.run_now(*job, None, *KEY))
        live_on(aws, job)

    stalled(aws, monkeypatch, twin)
    late = aws.jobs.run_now(*job, None, *KEY)
    assert (late.run.run_id, late.run.status) == (first[0].run.run_id, RunStatus.SUCCESS)
    assert aws.execute() == []
    assert len(runs(aws, job)) == 1


def test_a_retry_that_a_twin_ordered_and_that_is_over_is_not_made_again(
    aws: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(aws)
    former = aws.jobs.run_now(*job).run.run_id
    live_on(aws, job)

    def twin() -> None:
        finish(aws.jobs.retry(*job, former, *KEY))
        live_on(aws, job)

    stalled(aws, monkeypatch, twin)
    assert finish(aws.jobs.retry(*job, former, *KEY)).run.status is RunStatus.SUCCESS
    assert aws.execute() == []
    assert len(runs(aws, job)) == 2


def test_a_time_that_a_twin_has_backfilled_meanwhile_is_not_run_again(
    aws: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job(aws)
    reach = (NOON - timedelta(hours=4), NOON - timedelta(hours=1))

    def twin() -> None:
        assert len(finish(aws.jobs.backfill(*job, *reach, False))) == 3
        live_on(aws, job)

    stalled(aws, monkeypatch, twin)
    finish(aws.jobs.backfill(*job, *reach, False))
    assert aws.execute() == []
    found = runs(aws, job)
    assert [view.run.status for view in found] == [RunStatus.SUCCESS] * 3
