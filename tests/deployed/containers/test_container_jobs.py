"""Container jobs on a deployment: the executor starts them, ECS's stand-in runs them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.containers.ecs import Ecs, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World, a_world

TASK = {"type": "container", "image": "registry.example.com/report:1", "command": ["report"]}
AT_ONCE = {"schedule_type": "IMMEDIATE", "payload": {"day": "monday"}}


class Deployment:
    """A deployment with containers, and the stand-in for ECS behind its clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api: Gateway = open_api(world)
        self.ecs = Ecs(world.clock)
        world.clients.add_observer(self._answer)

    def _answer(self, client: Any) -> None:
        if client.meta.service_model.service_name in ("ecs", "logs"):
            self.ecs.answer(client)

    def submit(self, **fields: Any) -> str:
        return submit_job(self.api, **{**AT_ONCE, "task": TASK, **fields})

    def deliver_events(self) -> None:
        for event in self.ecs.events:
            self._invoke(event)
        self.ecs.events.clear()

    def deliver_stop_requests(self) -> None:
        """Deliver the events that the rule on the stage's bus sends to the function."""
        for entry in self.world.published():
            if entry["DetailType"] == "Container Stop Requested":
                self._invoke(_bus_event(entry))

    def sweep(self) -> None:
        self.world.run(MINUTE)
        self._invoke({"detail-type": "Scheduled Event"})
        self.world.run(SECOND)

    def _invoke(self, event: dict[str, Any]) -> None:
        self.world.invoke(self.world.name("containers"), event)
        assert self.world.failures == []

    def limits(self) -> dict[str, tuple[float, float]]:
        limits = self.api.get("/stats").json["limits"]
        return {limit["limit"]: (limit["allowed"], limit["used"]) for limit in limits}

    def run_of(self, job: str) -> dict[str, Any]:
        (run,) = runs_of(self.api, job)
        answer: dict[str, Any] = self.api.get(f"/jobs/{job}/runs/{run['run_id']}").json
        return answer


def _bus_event(entry: Any) -> dict[str, Any]:
    return {
        "source": entry["Source"],
        "detail-type": entry["DetailType"],
        "detail": json.loads(entry["Detail"]),
    }


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    with a_world("rehearsal") as world:
        yield Deployment(world)


def test_container_job_runs_from_the_api_to_its_logs(deployment: Deployment) -> None:
    job = deployment.submit()
    deployment.world.run(5 * SECOND)
    task = deployment.ecs.only_task()
    assert task.command == ["report"]
    assert task.environment["PUNCTUAL_JOB_ID"] == job
    assert "X-Amz-Expires=3600" in task.environment["PUNCTUAL_PAYLOAD_URL"]
    assert deployment.run_of(job)["status"] == "CLAIMED"
    deployment.ecs.run(task)
    deployment.deliver_events()
    assert deployment.run_of(job)["status"] == "RUNNING"
    deployment.ecs.print(task, "hello")
    deployment.ecs.exit(task, 0)
    deployment.deliver_events()
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"], run["attempt_number"]) == ("SUCCESS", 0, 1)
    name = f"logs/default/{job}/{run['run_id']}/1"
    assert deployment.world.object(name) == b"hello\n"


def test_long_start_loses_no_run(deployment: Deployment) -> None:
    job = deployment.submit()
    deployment.world.run(5 * SECOND)
    for _ in range(4):
        deployment.sweep()
    claimed = deployment.run_of(job)
    assert claimed["status"] == "CLAIMED"
    assert (claimed["start_time"], claimed["lateness_ms"]) == (None, None), "a claim is no start"
    deployment.ecs.run(deployment.ecs.only_task())
    deployment.sweep()
    run = deployment.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("RUNNING", 1)
    assert run["lateness_ms"] >= 4 * 60_000


def test_cancel_request_reaches_the_task_by_the_stream(deployment: Deployment) -> None:
    job = deployment.submit()
    deployment.world.run(5 * SECOND)
    task = deployment.ecs.only_task()
    deployment.ecs.run(task)
    deployment.deliver_events()
    run_id = deployment.run_of(job)["run_id"]
    assert deployment.api.post(f"/jobs/{job}/runs/{run_id}/cancel").status == 202
    deployment.world.run(3 * SECOND)
    deployment.deliver_stop_requests()
    assert task.stop_requests == ["Punctual: CANCEL"]
    deployment.ecs.stop_requested(task)
    deployment.deliver_events()
    assert deployment.run_of(job)["status"] == "CANCELLED"


def test_throttled_start_is_tried_again_by_the_queue(deployment: Deployment) -> None:
    throttle = Refusal("InvalidParameterException", "Rate exceeded")
    deployment.ecs.plant("RunTask", *[throttle] * 5)
    job = deployment.submit()
    deployment.world.run(10 * SECOND)
    assert deployment.run_of(job)["status"] == "WAITING"
    deployment.world.run(2 * MINUTE)
    assert len(deployment.ecs.tasks) == 1
    run = deployment.run_of(job)
    assert (run["status"], run["attempt_number"]) == ("CLAIMED", 1)


def test_secret_reaches_the_task_as_the_arn_of_its_parameter(deployment: Deployment) -> None:
    deployment.world.session.client("ssm").put_parameter(
        Name="/punctual/rehearsal/secrets/default/token", Value="hush", Type="SecureString"
    )
    deployment.submit(task={**TASK, "env": {"TOKEN": "{{secret:token}}", "MODE": "fast"}})
    deployment.world.run(5 * SECOND)
    task = deployment.ecs.only_task()
    (definition,) = deployment.ecs.definitions.values()
    (secret,) = definition["containerDefinitions"][0]["secrets"]
    assert secret["name"] == "TOKEN"
    assert secret["valueFrom"].endswith(":parameter/punctual/rehearsal/secrets/default/token")
    assert "hush" not in str(task.params) + str(definition)


def test_secret_that_ecs_cannot_read_starts_no_container(deployment: Deployment) -> None:
    deployment.world.session.client("secretsmanager").create_secret(
        Name="punctual/rehearsal/default/token", SecretString="hush"
    )
    job = deployment.submit(task={**TASK, "env": {"TOKEN": "{{secret:token}}"}})
    deployment.world.run(5 * SECOND)
    run = deployment.run_of(job)
    assert (run["status"], deployment.ecs.tasks) == ("FAILED", {})
    assert run["error_message"] == (
        "There is no secret 'token' for containers: they take only secrets that "
        "`punctual secrets set` has stored"
    )


def test_health_names_containers_where_the_stage_has_them(deployment: Deployment) -> None:
    health = deployment.api.get("/health").json
    assert "container" in health["task_types"]
    margins = health["margin_seconds"]
    assert margins.pop("container") == 120, "Fargate starts a task in a minute or two"
    assert margins == {"event": 2, "http": 2, "lambda": 2, "script": 2, "sqs": 2}


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"resources": {"cpu": 3}}, "task.resources.cpu"),
        ({"resources": {"cpu": 8}}, "task.resources.cpu"),
        ({"env": {"A": "x" * 6_200}}, "task.env"),
        ({"image": "No Image"}, "task.image"),
    ],
)
def test_container_that_cannot_run_is_refused(
    deployment: Deployment, task: dict[str, Any], field: str
) -> None:
    answer = deployment.api.post("/jobs", {"name": "n", **AT_ONCE, "task": {**TASK, **task}})
    assert answer.status == 422
    assert [error["field"] for error in answer.json["errors"]] == [field]


def test_stage_without_containers_says_so() -> None:
    with a_world("dev") as world:
        answer = open_api(world).post("/jobs", {"name": "n", **AT_ONCE, "task": TASK})
        assert answer.status == 422
        assert answer.json["errors"][0]["message"] == (
            "container tasks are offered only on AWS, in a stage that has `containers` on"
        )


def test_container_without_processors_waits_until_a_sweep_counts_some_as_free(
    deployment: Deployment,
) -> None:
    large = {**TASK, "resources": {"cpu": 4, "memory_mb": 8_192}}
    first = deployment.submit(task=large)
    deployment.world.run(5 * SECOND)
    second = deployment.submit()
    deployment.world.run(5 * SECOND)
    run = deployment.run_of(second)
    assert (run["status"], run["reason"]["code"]) == ("WAITING", "RESOURCES")
    assert deployment.limits()["container_vcpu"] == (4, 4)
    task = deployment.ecs.only_task()
    deployment.ecs.run(task)
    deployment.ecs.exit(task, 0)
    deployment.deliver_events()
    assert deployment.run_of(first)["status"] == "SUCCESS"
    deployment.sweep()
    deployment.world.run(MINUTE)
    run = deployment.run_of(second)
    assert (run["status"], run["attempt_number"], len(deployment.ecs.tasks)) == ("CLAIMED", 1, 2)
    assert deployment.limits()["container_vcpu"] == (4, 0.25)


def test_container_that_can_never_fit_is_refused(deployment: Deployment) -> None:
    larger = {**TASK, "resources": {"cpu": 8, "memory_mb": 16_384}}
    answer = deployment.api.post("/jobs", {"name": "large", **AT_ONCE, "task": larger})
    assert answer.status == 422
    assert "maxContainerVcpu" in answer.body
