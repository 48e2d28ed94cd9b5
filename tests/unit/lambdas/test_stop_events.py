"""The event that stops the container of a cancelled run."""

from typing import Any

import pytest

from punctual.domain.job_state import JobState, Rules
from punctual.domain.run import Reason, Run, RunStatus
from punctual.lambdas.status.events import STOP_REQUESTED, stop_events
from punctual.tasks.event import detail_type_problem
from tests.support.builders import JOB, NOON, RUN, a_job_state, a_run


def a_state(task_type: str, *runs: Run, timeout_seconds: int = 300) -> JobState:
    rules = Rules(
        definition_ref="1-body",
        effective_at=NOON,
        task_type=task_type,
        timeout_seconds=timeout_seconds,
    )
    return a_job_state(rules={1: rules}, runs=runs)


def held(**fields: Any) -> Run:
    return a_run(status=RunStatus.RUNNING, **fields)


def test_new_cancel_request_of_a_container_is_told_once() -> None:
    cancelled = a_state("container", held(cancel_reason=Reason.CANCELLED))
    (event,) = stop_events(a_state("container", held()), cancelled)
    assert event == {
        "source": "punctual",
        "detail-type": STOP_REQUESTED,
        "detail": {"job_id": JOB, "run_ids": [RUN]},
    }
    assert list(stop_events(cancelled, cancelled)) == []


@pytest.mark.parametrize(("seconds", "events"), [(840, 0), (841, 1)])
def test_script_that_runs_in_a_container_is_stopped_like_one(seconds: int, events: int) -> None:
    before = a_state("script", held(), timeout_seconds=seconds)
    after = a_state("script", held(cancel_reason=Reason.CANCELLED), timeout_seconds=seconds)
    assert len(list(stop_events(before, after))) == events


@pytest.mark.parametrize(
    ("task_type", "run"),
    [
        ("script", held(cancel_reason=Reason.CANCELLED)),
        ("container", held()),
        ("container", a_run(status=RunStatus.QUEUED, cancel_reason=Reason.CANCELLED)),
    ],
    ids=["another type", "no request", "not started"],
)
def test_other_changes_stop_nothing(task_type: str, run: Run) -> None:
    assert list(stop_events(a_state(task_type, held()), a_state(task_type, run))) == []
    assert list(stop_events(a_state(task_type, held()), None)) == []


def test_tasks_may_not_publish_the_event() -> None:
    assert "reserved" in detail_type_problem(STOP_REQUESTED)
