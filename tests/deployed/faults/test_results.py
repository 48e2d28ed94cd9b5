"""A run that has ended is shown with what it left, also before its history row stands."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.left import EVENT, OFTEN, QUICK, struck
from tests.support.deployed.scenes import a_task, submitted
from tests.support.deployed.world import MINUTE, SECOND, World

REFUSED = {"type": "http", "url": "https://192.0.2.1/"}


def after_the_swap_that_ends(world: World) -> Callable[[Moment], bool]:
    """An executor claims with its first write of a head, and ends the run with the second."""
    seen = [0]

    def hit(moment: Moment) -> bool:
        by = (moment.role, moment.operation, moment.answered)
        seen[0] += by == (world.name("executor-quick"), "UpdateItem", True)
        return seen[0] == 2

    return hit


@contextmanager
def ended_unrecorded(world: World, api: Gateway, task: Any, payload: Any) -> Iterator[str]:
    """A job with one run, whose executor died between the swap and the history row."""
    world.work = lambda given: given
    says = {**OFTEN, **QUICK, "task": task, "payload": payload, "max_retries": 0}
    job = submitted(api, **says)
    killed = Killed("out of memory")
    with struck(world, after_the_swap_that_ends(world), killed):
        assert api.post(f"/jobs/{job}/runNow").status == 202
        world.run(SECOND / 2)
    assert world.ended() == [], "the history row stands already"
    yield job
    assert world.ended() == [], "the history row was written while it was looked at"


def shown_everywhere(api: Gateway, job: str) -> list[Mapping[str, Any]]:
    """The one run of a job, by each call that shows it."""
    (listed,) = api.get(f"/jobs/{job}/runs").json["runs"]
    (of_all,) = api.get("/runs").json["runs"]
    (in_list,) = api.get("/jobs").json["jobs"]
    return [
        api.get(f"/jobs/{job}/runs/{listed['run_id']}").json,
        listed,
        of_all,
        in_list["latest_run"],
        api.get(f"/jobs/{job}").json["latest_run"],
        api.get(f"/jobs/{job}/status").json["latest_run"],
    ]


@pytest.mark.parametrize(
    ("task", "payload"),
    [(a_task(), {"order": 1}), (EVENT, {"order": 1})],
    ids=["in S3", "in the run itself"],
)
def test_a_run_that_succeeded_is_shown_with_its_output_at_once(
    world: World, api: Gateway, task: Any, payload: Any
) -> None:
    with ended_unrecorded(world, api, task, payload) as job:
        world.throttled.add(world.name("status"))
        found = api.get(f"/jobs/{job}/runs").json["runs"][0]["run_id"]
        answer = api.get(f"/jobs/{job}/runs/{found}/output")
        assert answer.status in (200, 302)
        assert answer.body or answer.headers["location"]
        for run in shown_everywhere(api, job):
            assert (run["status"], run["error_message"]) == (RunStatus.SUCCESS, None)
            assert run["output_url"] is not None


def test_a_run_that_failed_is_shown_with_its_error_at_once(world: World, api: Gateway) -> None:
    with ended_unrecorded(world, api, REFUSED, {}) as job:
        world.throttled.add(world.name("status"))
        for run in shown_everywhere(api, job):
            assert run["status"] == RunStatus.FAILED
            assert run["error_message"], run


def test_the_list_over_all_jobs_keeps_what_a_run_left_whose_row_came_later(
    world: World, api: Gateway
) -> None:
    """The stream is read before the row stands: what is listed then is never written again."""
    with ended_unrecorded(world, api, a_task(), {"order": 1}) as job:
        world.run(3 * SECOND)
    world.run(2 * MINUTE)
    (run,) = api.get("/runs").json["runs"]
    assert (run["job_id"], run["status"]) == (job, RunStatus.SUCCESS)
    assert run["output_url"] is not None


@pytest.mark.parametrize("recorded", [False, True])
def test_a_repeated_submission_shows_its_run_with_what_it_left(
    world: World, api: Gateway, recorded: bool
) -> None:
    asked = {"name": "once", "schedule_type": "IMMEDIATE", "task": REFUSED, **QUICK}
    key = {"idempotency_key": "a payout"}
    with struck(world, after_the_swap_that_ends(world), Killed("out of memory")):
        job = api.post("/jobs", asked, **key).json
        world.run(SECOND / 2)
    if recorded:
        world.run(20 * MINUTE)
    assert bool(world.ended()) is recorded
    again = api.post("/jobs", asked, **key)
    assert (again.status, again.json["job_id"]) == (202, job["job_id"])
    run = again.json["latest_run"]
    assert (run["status"], bool(run["error_message"])) == (RunStatus.FAILED, True)
