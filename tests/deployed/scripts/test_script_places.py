"""Places of script functions and of tenants, from the API to the executor and the stream."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.leases import DETACHED_LEASE
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World, a_world

SCRIPT = {
    "schedule_type": "IMMEDIATE",
    "task": {"type": "script", "runtime": "bash", "code": "echo out"},
    "payload": None,
}
SETTLED = 5 * SECOND  # an executor has seen a message, or the stream an end


class Scripts:
    """A deployment with one place for scripts in bash, and detached runners that a test plays."""

    def __init__(self, world: World, **variables: str) -> None:
        world.set_variables(**variables)
        self.world = world
        self.api: Gateway = open_api(world)
        self._outside = Gateway(world, "")

    def submit(self, **fields: Any) -> str:
        job = submit_job(self.api, **{**SCRIPT, **fields})
        self.world.run(SETTLED)
        return job

    def run_of(self, job: str) -> dict[str, Any]:
        (run,) = runs_of(self.api, job)
        return dict(run)

    def state_of(self, job: str) -> tuple[str, str | None]:
        run = self.run_of(job)
        return run["status"], (run["reason"] or {}).get("code")

    def finish(self, event: dict[str, Any], status: str = "SUCCESS") -> None:
        body = {"claims": [{"claim": event["claim"], "status": status}]}
        answer = self._outside.post("/claims/finish", body)
        assert [claim["status"] for claim in answer.json["results"]] == ["OK"]
        self.world.run(SETTLED)

    def begin(self, event: dict[str, Any]) -> None:
        body = {
            "claims": [
                {"claim": event["claim"], "runner_id": "one", "started_at": "2026-03-02T12:00:00Z"}
            ]
        }
        assert self._outside.post("/claims/renew", body).json["results"][0]["status"] == "OK"

    def used(self, limit: str = "script_bash_places") -> float:
        (found,) = [
            found for found in self.api.get("/stats").json["limits"] if found["limit"] == limit
        ]
        return float(found["used"])


@pytest.fixture
def world() -> Iterator[World]:
    with a_world("rehearsal") as world:
        yield world


@pytest.fixture
def scripts(world: World) -> Scripts:
    return Scripts(world, PUNCTUAL_SCRIPT_PLACES="script-bash=1 script-python=2")


def test_script_without_a_place_waits_and_starts_after_the_other_has_ended(
    scripts: Scripts,
) -> None:
    first, second = scripts.submit(), scripts.submit()
    assert scripts.state_of(first)[0] == "CLAIMED"
    assert scripts.state_of(second) == ("WAITING", "RESOURCES")
    assert (scripts.used(), scripts.used("script_python_places")) == (1, 0)
    scripts.finish(scripts.world.script_events.pop())
    scripts.world.run(20 * SECOND)
    run = scripts.run_of(second)
    assert (run["status"], run["attempt_number"]) == ("CLAIMED", 1)
    scripts.finish(scripts.world.script_events.pop())
    assert scripts.state_of(second) == ("SUCCESS", None)
    assert scripts.used() == 0


def test_waiting_script_is_found_by_status_and_counted(scripts: Scripts) -> None:
    scripts.submit()
    job = scripts.submit()
    waiting = scripts.api.get("/runs?status=WAITING").json["runs"]
    assert [run["job_id"] for run in waiting] == [job]
    assert scripts.api.get("/stats").json["runs"]["WAITING"] == 1
    assert scripts.api.get("/runs?status=QUEUED").json["runs"] == []


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "RELEASED"])
def test_place_is_free_after_each_end_by_claim(scripts: Scripts, status: str) -> None:
    scripts.submit(max_retries=0)
    scripts.world.throttled.add(scripts.world.name("executor-long"))
    scripts.finish(scripts.world.script_events.pop(), status)
    assert scripts.used() == 0


def test_place_is_free_after_a_lost_start_and_a_lost_runner(scripts: Scripts) -> None:
    job = scripts.submit(delivery="AT_MOST_ONCE")
    scripts.world.run(DETACHED_LEASE + SETTLED)
    assert scripts.state_of(job) == ("WAITING", "BACKOFF"), "Lambda has dropped the event"
    assert scripts.used() == 0
    scripts.world.run(MINUTE)
    assert scripts.used() == 1
    scripts.begin(scripts.world.script_events.pop())
    scripts.world.run(MINUTE)
    assert scripts.state_of(job) == ("FAILED", "LOST")
    assert scripts.used() == 0


def test_cancelled_run_that_waits_for_a_place_ends_at_once(scripts: Scripts) -> None:
    scripts.submit()
    job = scripts.submit()
    assert (
        scripts.api.post(f"/jobs/{job}/runs/{scripts.run_of(job)['run_id']}/cancel").status == 202
    )
    assert scripts.state_of(job)[0] == "CANCELLED"
    assert scripts.used() == 1


def test_waited_script_needs_a_place_and_gives_it_back(scripts: Scripts) -> None:
    first = scripts.submit()
    waited = scripts.submit(timeout_seconds=20)
    assert scripts.state_of(waited) == ("WAITING", "RESOURCES")
    scripts.finish(scripts.world.script_events.pop())
    scripts.world.run(MINUTE)
    assert (scripts.state_of(first)[0], scripts.state_of(waited)[0]) == ("SUCCESS", "SUCCESS")
    assert scripts.used() == 0


def test_script_of_another_runtime_has_places_of_its_own(scripts: Scripts) -> None:
    scripts.submit()
    python = scripts.submit(task={"type": "script", "runtime": "python", "code": "print(1)"})
    node = scripts.submit(task={"type": "script", "runtime": "node", "code": "1"})
    assert {scripts.state_of(job)[0] for job in (python, node)} == {"CLAIMED"}
    shown = {limit["limit"] for limit in scripts.api.get("/stats").json["limits"]}
    assert shown - {"artifacts", "artifact_mb"} == {
        "script_bash_places",
        "script_python_places",
        "container_vcpu",
    }, "the runtime without a reservation has no limit of ours"


def test_throttle_of_lambda_shows_that_the_run_waits_for_room(world: World) -> None:
    scripts = Scripts(world)
    world.throttles_scripts = True
    job = scripts.submit()
    assert scripts.state_of(job) == ("WAITING", "RESOURCES")
    world.throttles_scripts = False
    world.run(MINUTE)
    run = scripts.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("CLAIMED", 1)


def test_run_that_waits_for_long_is_no_dead_letter(scripts: Scripts) -> None:
    scripts.submit(timeout_seconds=840)
    scripts.begin(scripts.world.script_events[0])
    waiting = scripts.submit(delivery="AT_MOST_ONCE")
    for _ in range(20):
        scripts.begin(scripts.world.script_events[0])
        scripts.world.run(15 * SECOND)
    run = scripts.run_of(waiting)
    assert (run["status"], run["attempt_number"]) == ("WAITING", 1)
    assert run["reason"]["code"] == "RESOURCES"


# The limit of a tenant


def test_handed_over_script_counts_in_its_tenants_runs_until_it_ends(world: World) -> None:
    scripts = Scripts(world, PUNCTUAL_LIMITS="on concurrent_runs=1")
    first, second = scripts.submit(), scripts.submit()
    scripts.begin(world.script_events[0])
    assert [scripts.state_of(job)[0] for job in (first, second)] == ["RUNNING", "QUEUED"]
    world.run(10 * SECOND)
    assert scripts.state_of(second)[0] == "QUEUED", "the limit holds while the runner works"
    event = world.script_events.pop()
    body = {"claims": [{"claim": event["claim"], "runner_id": "one", "status": "SUCCESS"}]}
    assert Gateway(world, "").post("/claims/finish", body).status == 200
    world.run(MINUTE)
    assert [scripts.state_of(job)[0] for job in (first, second)] == ["SUCCESS", "CLAIMED"]
    rows = [row for row in world.rows(keys.CONTROL_TABLE) if "#share#places" in row["pk"]["S"]]
    (row,) = [json.loads(row[keys.DATA_ATTR]["S"]) for row in rows]
    assert len("".join(row["claims"].values())) == 5, "one mark, of the second run"
