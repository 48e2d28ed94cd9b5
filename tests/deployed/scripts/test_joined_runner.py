"""Script jobs on a deployment with the real runner, from the API to the output."""

from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests

from punctual.domain.leases import RUN_LEASE
from tests.support.acceptance.programs import zip_of
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World, a_world
from tests.support.runner.joined_runners import ScriptRunners, script_runners

HAND_OVER = 5 * SECOND
LEASE_END = RUN_LEASE + timedelta(seconds=15)  # with the timer that finds it


@pytest.fixture
def world() -> Iterator[World]:
    with a_world("dev") as world:
        yield world


@pytest.fixture
def api(world: World) -> Gateway:
    return open_api(world)


@pytest.fixture
def runners(world: World, api: Gateway, tmp_path: Path) -> Iterator[ScriptRunners]:
    with script_runners(world, tmp_path / "runners") as runners:
        yield runners


def submit_script(world: World, api: Gateway, code: str, **fields: Any) -> str:
    """Submit a script with a long timeout, and let an executor hand it over."""
    task = {"type": "script", "runtime": "bash", "code": code}
    job_id = submit_job(api, schedule_type="IMMEDIATE", **{"task": task, "payload": None, **fields})
    world.run(HAND_OVER)
    return job_id


def only_run(api: Gateway, job_id: str) -> dict[str, Any]:
    (run,) = runs_of(api, job_id)
    return dict(api.get(f"/jobs/{job_id}/runs/{run['run_id']}").json)


def log_of(api: Gateway, run: dict[str, Any]) -> str:
    return api.get(f"/jobs/{run['job_id']}/runs/{run['run_id']}/logs").body


def upload(api: Gateway, content: bytes) -> str:
    fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "app.zip"}
    created = api.post("/artifacts", fields).json
    headers = created["upload_headers"]
    sent = requests.put(created["upload_url"], data=content, headers=headers, timeout=5)
    assert sent.status_code == 200
    return str(created["artifact_id"])


def test_waited_script_runs_in_the_runner(
    world: World, api: Gateway, runners: ScriptRunners
) -> None:
    code = "cat; echo err >&2; exit 3"
    job_id = submit_script(world, api, code, payload={"n": 1}, timeout_seconds=20, max_retries=0)
    run = only_run(api, job_id)
    assert (run["status"], run["exit_code"]) == ("FAILED", 3)
    assert run["error_message"] == "Exit code 3\nerr"
    assert api.output(job_id, run["run_id"]) == b'{"n":1}\n'
    assert sorted(log_of(api, run).splitlines()) == ["err", '{"n":1}']
    assert runners.calls == [], "the executor itself finishes a short script"


def test_handed_over_script_is_finished_by_its_runner(
    world: World, api: Gateway, runners: ScriptRunners
) -> None:
    job_id = submit_script(world, api, "head -c 3000000 /dev/zero; echo err >&2")
    assert only_run(api, job_id)["status"] == "CLAIMED"
    assert runners.run_next().errors == ""
    run = only_run(api, job_id)
    assert (run["status"], run["exit_code"], run["attempt_number"]) == ("SUCCESS", 0, 1)
    assert api.output(job_id, run["run_id"]) == bytes(3_000_000)
    assert runners.calls[0] == "POST /v1/claims/renew"
    assert runners.calls[-1] == "POST /v1/claims/finish"
    assert "PUT /bucket/" in runners.calls


def test_artifact_is_downloaded_by_a_signed_link(
    world: World, api: Gateway, runners: ScriptRunners
) -> None:
    content = zip_of({"main.py": b"import rows; print(rows.ROWS)", "rows.py": b"ROWS = [1, 2]"})
    task = {"type": "script", "runtime": "python", "artifact_id": upload(api, content)}
    job_id = submit_script(world, api, "", task=task, timeout_seconds=20)
    link = world.script_events[0]["task"]["artifact"]["url"]
    runners.run_next()
    run = only_run(api, job_id)
    assert (run["status"], api.output(job_id, run["run_id"])) == ("SUCCESS", b"[1, 2]\n")
    assert runners.calls[:2] == ["POST /v1/claims/renew", "GET /bucket/"]
    assert requests.get(link, timeout=5).content == content
    assert "X-Amz-Signature=" in link


def test_event_that_is_delivered_twice_runs_once(
    world: World, api: Gateway, runners: ScriptRunners, tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    code = f"echo $$ >> {begun}; until [ -e {go_on} ]; do sleep 0.05; done; echo done"
    job_id = submit_script(world, api, code)
    event = world.script_events.pop()
    first = runners.start(event, PUNCTUAL_SANDBOX="none")
    runners.serve_until(begun.exists)
    second = runners.end(runners.start(event, PUNCTUAL_SANDBOX="none"))
    assert (second.exit_code, only_run(api, job_id)["status"]) == (1, "RUNNING")
    go_on.touch()
    runners.end(first)
    run = only_run(api, job_id)
    assert (run["status"], api.output(job_id, run["run_id"])) == ("SUCCESS", b"done\n")
    assert len(begun.read_text().splitlines()) == 1


def killed_runner(world: World, runners: ScriptRunners, begun: Path) -> None:
    """Start the runner of the oldest event, and kill it once its script has begun."""
    event = world.script_events.pop(0)
    runner = runners.start(event, PUNCTUAL_SANDBOX="none")
    runners.serve_until(begun.exists)
    runner.process.kill()
    runner.process.wait()
    begun.unlink()


def test_killed_runner_loses_its_attempt_and_another_repeats_it(
    world: World, api: Gateway, runners: ScriptRunners, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = f"echo $PUNCTUAL_ATTEMPT; touch {begun}; [ $PUNCTUAL_ATTEMPT = 2 ] || sleep 1000"
    job_id = submit_script(world, api, code, max_retries=0)
    killed_runner(world, runners, begun)
    assert only_run(api, job_id)["status"] == "RUNNING"
    world.run(LEASE_END)
    runners.run_next(PUNCTUAL_SANDBOX="none")
    run = only_run(api, job_id)
    attempts = [(attempt["attempt_number"], attempt["status"]) for attempt in run["attempts"]]
    assert (run["status"], attempts) == ("SUCCESS", [(1, "LOST"), (2, "SUCCESS")])
    assert api.output(job_id, run["run_id"]) == b"2\n"


def test_killed_runner_ends_a_run_that_may_run_once(
    world: World, api: Gateway, runners: ScriptRunners, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = f"touch {begun}; sleep 1000"
    job_id = submit_script(world, api, code, delivery="AT_MOST_ONCE")
    killed_runner(world, runners, begun)
    world.run(MINUTE)
    run = only_run(api, job_id)
    assert (run["status"], run["attempt_number"], world.script_events) == ("FAILED", 1, [])


def test_cancel_request_reaches_a_handed_over_script(
    world: World, api: Gateway, runners: ScriptRunners, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    job_id = submit_script(world, api, f"echo out; touch {begun}; sleep 1000")
    runner = runners.start(world.script_events.pop(), PUNCTUAL_SANDBOX="none")
    runners.serve_until(begun.exists)
    run = only_run(api, job_id)
    assert api.post(f"/jobs/{job_id}/runs/{run['run_id']}/cancel").status == 202
    runners.end(runner)
    run = only_run(api, job_id)
    assert (run["status"], run["error_message"]) == ("CANCELLED", "Cancelled")
    assert api.output(job_id, run["run_id"]) == b"out\n"
