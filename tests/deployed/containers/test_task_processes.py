"""The runner inside containers of a deployment: long scripts, and images of users that have it."""

from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.acceptance.programs import zip_of
from tests.support.containers.ecs import Ecs
from tests.support.containers.scenario import stand_in_for_ecs, sweep
from tests.support.containers.task_processes import TaskProcesses
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World, a_world
from tests.support.runner.joined_runners import script_runners

LONG_SECONDS = 1_000
IMAGE = {"type": "container", "image": "registry.example.com/report:1"}


class Deployment:
    """A deployment with containers. ECS is a stand-in, and its tasks are processes."""

    def __init__(self, world: World, folder: Path, stack: ExitStack) -> None:
        self.world = world
        self.api: Gateway = open_api(world)
        self.ecs: Ecs = stand_in_for_ecs(world)
        self.runners = stack.enter_context(script_runners(world, folder))
        self.tasks = TaskProcesses(world, self.ecs, self.runners)

    def submit(self, task: dict[str, Any], **fields: Any) -> str:
        """Submit a job, and let an executor start its task."""
        document = {"schedule_type": "IMMEDIATE", "payload": {"n": 1}, "task": task, **fields}
        job = submit_job(self.api, **document)
        self.world.run(5 * SECOND)
        return job

    def submit_script(self, code: str, **fields: Any) -> str:
        task = {"type": "script", "runtime": "bash", "code": code, **fields.pop("task", {})}
        return self.submit(task, timeout_seconds=LONG_SECONDS, **fields)

    def upload(self, content: bytes) -> str:
        fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "app.zip"}
        created = self.api.post("/artifacts", fields).json
        headers = created["upload_headers"]
        sent = requests.put(created["upload_url"], data=content, headers=headers, timeout=5)
        assert sent.status_code == 200
        return str(created["artifact_id"])

    def run_of(self, job: str) -> dict[str, Any]:
        latest = self.api.get(f"/jobs/{job}/status").json["latest_run"]
        run: dict[str, Any] = self.api.get(f"/jobs/{job}/runs/{latest['run_id']}").json
        return run

    def output_of(self, job: str) -> bytes:
        return self.api.output(job, self.run_of(job)["run_id"])

    def log_of(self, job: str) -> str:
        return self.api.get(f"/jobs/{job}/runs/{self.run_of(job)['run_id']}/logs").body

    def cancel(self, job: str) -> None:
        path = f"/jobs/{job}/runs/{self.run_of(job)['run_id']}/cancel"
        assert self.api.post(path).status == 202

    def stored_starts(self) -> list[str]:
        """Return the names of the objects that tasks read."""
        s3 = self.world.session.client("s3")
        return [
            item["Key"]
            for bucket in s3.list_buckets()["Buckets"]
            for item in s3.list_objects_v2(Bucket=bucket["Name"], Prefix="outputs/").get(
                "Contents", []
            )
            if item["Key"].endswith(".json")
        ]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with a_world("rehearsal") as world, ExitStack() as stack:
        yield Deployment(world, tmp_path / "runners", stack)


def test_script_of_over_14_minutes_runs_on_fargate(deployment: Deployment) -> None:
    job = deployment.submit_script("cat; echo err >&2; exit 3", max_retries=0)
    task = deployment.ecs.only_task()
    assert deployment.world.script_events == [], "no function got the script"
    assert deployment.run_of(job)["status"] == "CLAIMED"
    assert deployment.tasks.end(task, deployment.tasks.start(task)) == 3
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"], run["attempt_number"]) == ("FAILED", 3, 1)
    assert run["error_message"] == "Exit code 3\nerr"
    assert deployment.output_of(job) == b'{"n":1}\n'
    assert sorted(deployment.log_of(job).splitlines()) == ["err", '{"n":1}']
    assert deployment.stored_starts() == []


def test_artifact_of_over_14_minutes_runs_on_fargate(deployment: Deployment) -> None:
    content = zip_of({"main.py": b"import rows; print(rows.ROWS)", "rows.py": b"ROWS = [1, 2]"})
    artifact = deployment.upload(content)
    task = {"type": "script", "runtime": "python", "artifact_id": artifact}
    job = deployment.submit(task, timeout_seconds=LONG_SECONDS)
    fargate_task = deployment.ecs.only_task()
    deployment.tasks.end(fargate_task, deployment.tasks.start(fargate_task))
    assert (deployment.run_of(job)["status"], deployment.output_of(job)) == ("SUCCESS", b"[1, 2]\n")


def test_script_with_more_memory_than_a_function_runs_on_fargate(deployment: Deployment) -> None:
    task = {
        "type": "script",
        "runtime": "bash",
        "code": "echo large",
        "resources": {"memory_mb": 2_000},
    }
    job = deployment.submit(task, timeout_seconds=20)
    fargate_task = deployment.ecs.only_task()
    deployment.tasks.end(fargate_task, deployment.tasks.start(fargate_task))
    assert (deployment.run_of(job)["status"], deployment.output_of(job)) == ("SUCCESS", b"large\n")


def test_large_output_of_a_long_script_is_uploaded_by_its_claim(deployment: Deployment) -> None:
    job = deployment.submit_script("head -c 3000000 /dev/zero")
    task = deployment.ecs.only_task()
    deployment.tasks.end(task, deployment.tasks.start(task))
    assert deployment.output_of(job) == bytes(3_000_000)
    assert "PUT /bucket/" in deployment.runners.calls


def test_secret_of_a_long_script_reaches_it_and_nothing_else(deployment: Deployment) -> None:
    assert deployment.api.call("PUT", "/secrets/token", {"value": "swordfish-7"}).status == 204
    code = 'echo "$URL" | tr a-z A-Z; echo "$URL"; env'
    env = {"URL": "https://a/?key={{secret:token}}"}
    job = deployment.submit_script(code, task={"env": env})
    task = deployment.ecs.only_task()
    (name,) = deployment.stored_starts()
    assert b"swordfish" not in deployment.world.object(name)
    assert "swordfish" not in str(task.params) + str(deployment.ecs.definitions)
    deployment.tasks.end(task, deployment.tasks.start(task))
    lines = deployment.output_of(job).decode().splitlines()
    assert lines[:2] == ["HTTPS://A/?KEY=SWORDFISH-7", "https://a/?key=[secret]"]
    assert not [line for line in lines if line.startswith("PUNCTUAL_SECRET_")]
    assert not [line for line in lines if line.startswith("PUNCTUAL_RUN_URL")]


def test_log_of_a_long_script_grows_while_it_runs(deployment: Deployment, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    code = f"echo begun; until [ -e {go_on} ]; do sleep 0.05; done; echo done"
    job = deployment.submit_script(code)
    task = deployment.ecs.only_task()
    process = deployment.tasks.start(task, PUNCTUAL_SANDBOX="none")
    deployment.tasks.serve_until(lambda: deployment.log_of(job) == "begun\n")
    assert deployment.run_of(job)["status"] == "RUNNING"
    go_on.touch()
    deployment.tasks.end(task, process)
    assert deployment.log_of(job) == "begun\ndone\n"


def test_cancel_reaches_a_long_script_by_its_next_renewal(
    deployment: Deployment, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = f"trap 'echo bye; exit 9' TERM; touch {begun}; sleep 1000 & wait"
    job = deployment.submit_script(code)
    task = deployment.ecs.only_task()
    process = deployment.tasks.start(task, PUNCTUAL_SANDBOX="none")
    deployment.tasks.serve_until(begun.exists)
    deployment.cancel(job)
    deployment.tasks.end(task, process)
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"], run["error_message"]) == ("CANCELLED", 9, "Cancelled")
    assert deployment.output_of(job) == b"bye\n"


def test_long_script_of_a_killed_container_runs_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = f"if [ -e {begun} ]; then echo again; else touch {begun}; sleep 1000; fi"
    job = deployment.submit_script(code)
    first = deployment.ecs.only_task()
    process = deployment.tasks.start(first, PUNCTUAL_SANDBOX="none")
    deployment.tasks.serve_until(begun.exists)
    deployment.tasks.kill(first, process)
    deployment.world.run(5 * SECOND)
    second = deployment.ecs.newest_task()
    assert second is not first
    deployment.tasks.end(second, deployment.tasks.start(second, PUNCTUAL_SANDBOX="none"))
    run = deployment.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 2)
    assert deployment.output_of(job) == b"again\n"


def test_long_script_whose_container_never_starts_begins_later(deployment: Deployment) -> None:
    job = deployment.submit_script("echo late", delivery="AT_MOST_ONCE")
    for _ in range(6):
        deployment.world.run(MINUTE)
        sweep(deployment.world)
    slow = deployment.ecs.only_task()
    deployment.ecs.stop_requested(slow, None)
    sweep(deployment.world)
    deployment.world.run(MINUTE)
    task = deployment.ecs.newest_task()
    assert task is not slow
    deployment.tasks.end(task, deployment.tasks.start(task))
    run = deployment.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)


def test_image_with_the_runner_has_output_log_and_exit_code(deployment: Deployment) -> None:
    command = ["sh", "-c", "cat; echo err >&2; exit 4"]
    job = deployment.submit({**IMAGE, "command": command}, max_retries=0)
    task = deployment.ecs.only_task()
    assert deployment.tasks.end(task, deployment.tasks.start(task)) == 4
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"], run["attempt_number"]) == ("FAILED", 4, 1)
    assert run["error_message"] == "Exit code 4\nerr"
    assert deployment.output_of(job) == b'{"n":1}\n'
    assert sorted(deployment.log_of(job).splitlines()) == ["err", '{"n":1}']
    assert deployment.stored_starts() == []


def test_secret_of_an_image_with_the_runner_is_masked(deployment: Deployment) -> None:
    assert deployment.api.call("PUT", "/secrets/token", {"value": "swordfish-7"}).status == 204
    task_fields = {"command": ["sh", "-c", 'echo "$TOKEN"'], "env": {"TOKEN": "{{secret:token}}"}}
    job = deployment.submit({**IMAGE, **task_fields})
    task = deployment.ecs.only_task()
    deployment.tasks.end(task, deployment.tasks.start(task))
    assert deployment.output_of(job) == b"[secret]\n"


def test_log_and_cancel_of_an_image_with_the_runner(deployment: Deployment) -> None:
    command = ["sh", "-c", "echo begun; trap 'echo bye; exit 9' TERM; sleep 1000 & wait"]
    job = deployment.submit({**IMAGE, "command": command})
    task = deployment.ecs.only_task()
    process = deployment.tasks.start(task)
    deployment.tasks.serve_until(lambda: deployment.log_of(job) == "begun\n")
    deployment.cancel(job)
    deployment.tasks.end(task, process)
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"]) == ("CANCELLED", 9)
    assert deployment.output_of(job) == b"begun\nbye\n"
    assert deployment.log_of(job) == "begun\nbye\n"


def test_killed_container_with_the_runner_runs_again(deployment: Deployment) -> None:
    job = deployment.submit({**IMAGE, "command": ["sh", "-c", "echo begun; sleep 1000"]})
    first = deployment.ecs.only_task()
    process = deployment.tasks.start(first)
    deployment.tasks.serve_until(lambda: deployment.log_of(job) == "begun\n")
    deployment.tasks.kill(first, process)
    deployment.world.run(5 * SECOND)
    assert deployment.ecs.newest_task() is not first
    run = deployment.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("CLAIMED", 2)
