"""An ended run is shown with its results before its history row is written."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import EVENT, HOURLY, QUICK, inject_fault
from tests.support.deployed.scenes import a_task, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

REFUSED = {"type": "http", "url": "https://192.0.2.1/"}


def after_finish_swap(world: World) -> Callable[[Moment], bool]:
    """Match the second write of a job state by an executor, which ends the run."""
    seen = [0]

    def hit(moment: Moment) -> bool:
        by = (moment.role, moment.operation, moment.answered)
        seen[0] += by == (world.name("executor-quick"), "UpdateItem", True)
        return seen[0] == 2

    return hit


@contextmanager
def ended_unrecorded(world: World, api: Gateway, task: Any, payload: Any) -> Iterator[str]:
    """Yield a job with one run. Its executor crashed between the swap and the history row."""
    world.work = lambda given: given
    says = {**HOURLY, **QUICK, "task": task, "payload": payload, "max_retries": 0}
    job = submit_job(api, **says)
    killed = Killed("out of memory")
    with inject_fault(world, after_finish_swap(world), killed):
        assert api.post(f"/jobs/{job}/runNow").status == 202
        world.run(SECOND / 2)
    assert world.ended() == [], "the history row is already written"
    yield job
    assert world.ended() == [], "the history row was written during the test"


def run_from_each_call(api: Gateway, job: str) -> list[Mapping[str, Any]]:
    """Return the only run of a job from each call that never lags.

    The lists over all jobs and all runs wait for the status function.
    """
    (listed,) = api.get(f"/jobs/{job}/runs").json["runs"]
    return [
        api.get(f"/jobs/{job}/runs/{listed['run_id']}").json,
        listed,
        api.get(f"/jobs/{job}").json["latest_run"],
        api.get(f"/jobs/{job}/status").json["latest_run"],
    ]


@pytest.mark.parametrize(
    ("task", "payload"),
    [(a_task(), {"order": 1}), (EVENT, {"order": 1})],
    ids=["in S3", "in the run itself"],
)
def test_unrecorded_success_is_shown_with_output(
    world: World, api: Gateway, task: Any, payload: Any
) -> None:
    with ended_unrecorded(world, api, task, payload) as job:
        world.throttled.add(world.name("status"))
        run_id = api.get(f"/jobs/{job}/runs").json["runs"][0]["run_id"]
        answer = api.get(f"/jobs/{job}/runs/{run_id}/output")
        assert answer.status in (200, 302)
        assert answer.body or answer.headers["location"]
        for run in run_from_each_call(api, job):
            assert (run["status"], run["error_message"]) == (RunStatus.SUCCESS, None)
            assert run["output_url"] is not None


def test_unrecorded_failure_is_shown_with_error(world: World, api: Gateway) -> None:
    with ended_unrecorded(world, api, REFUSED, {}) as job:
        world.throttled.add(world.name("status"))
        for run in run_from_each_call(api, job):
            assert run["status"] == RunStatus.FAILED
            assert run["error_message"], run


def test_run_list_shows_output_recorded_after_stream_record(world: World, api: Gateway) -> None:
    """The stream is read before the history row exists. The list entry is written only once."""
    with ended_unrecorded(world, api, a_task(), {"order": 1}) as job:
        world.run(3 * SECOND)
    world.run(2 * MINUTE)
    (run,) = api.get("/runs").json["runs"]
    assert (run["job_id"], run["status"]) == (job, RunStatus.SUCCESS)
    assert run["output_url"] is not None


@pytest.mark.parametrize("recorded", [False, True])
def test_repeated_submission_shows_error_of_its_run(
    world: World, api: Gateway, recorded: bool
) -> None:
    asked = {"name": "once", "schedule_type": "IMMEDIATE", "task": REFUSED, **QUICK}
    key = {"idempotency_key": "a payout"}
    with inject_fault(world, after_finish_swap(world), Killed("out of memory")):
        job = api.post("/jobs", asked, **key).json
        world.run(SECOND / 2)
    if recorded:
        world.run(20 * MINUTE)
    assert bool(world.ended()) is recorded
    again = api.post("/jobs", asked, **key)
    assert (again.status, again.json["job_id"]) == (202, job["job_id"])
    run = again.json["latest_run"]
    assert (run["status"], bool(run["error_message"])) == (RunStatus.FAILED, True)
