"""Scripts in containers: their start, their runner, and every way in which one of both dies."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from punctual.domain.durations import MAX_FAILED_STARTS
from punctual.domain.run import RunStatus
from punctual.engine.execution.claims import ClaimFinish, ClaimRenewal
from punctual.engine.ports.rows import JobKey
from punctual.runner.event import read_event
from punctual.tasks.container.next_step import RUNNER_END_LIMIT
from tests.support.containers.ecs import Failures
from tests.support.containers.world import SCRIPTS_IMAGE, ContainersWorld, containers_world

TIMEOUT = timedelta(seconds=1_000)
TOKEN_ARN = "arn:aws:ssm:eu-west-1:1:parameter/punctual/dev/secrets/acme/token"


@pytest.fixture
def world() -> Iterator[ContainersWorld]:
    with containers_world() as made:
        yield made


class Runner:
    """The runner in the newest task, as the API sees it."""

    def __init__(self, world: ContainersWorld, runner_id: str = "runner-1") -> None:
        self._world = world
        self._claim = world.runner_event(world.task)["claim"]
        self._runner_id = runner_id

    def renew(self, log: bytes = b"", offset: int = 0) -> str:
        renewal = ClaimRenewal(self._claim, self._runner_id, True, log, offset)
        (answer,) = self._world.scene.claims.renew([renewal])
        return answer.status.value

    def finish(self, status: str = "SUCCESS", **fields: object) -> str:
        finish = ClaimFinish(self._claim, status, self._runner_id, **fields)  # type: ignore[arg-type]
        (answer,) = self._world.scene.claims.finish([finish])
        return answer.value


def run_task(world: ContainersWorld) -> Runner:
    """Let the newest task run, and its runner bind the claim."""
    world.ecs.run(world.task)
    world.deliver_events()
    runner = Runner(world)
    assert runner.renew() == "OK"
    return runner


def status_of(world: ContainersWorld, key: JobKey) -> RunStatus:
    return world.run_of(key).run.status


def test_long_script_runs_in_the_image_of_the_stage(world: ContainersWorld) -> None:
    key = world.start_script(payload={"n": 1})
    (definition,) = world.ecs.definitions.values()
    (container,) = definition["containerDefinitions"]
    assert container["image"] == SCRIPTS_IMAGE
    assert (definition["cpu"], definition["memory"]) == ("256", "1024"), "512 MB and the runner"
    assert not container["linuxParameters"]["initProcessEnabled"], "it would show its environment"
    event = world.runner_event(world.task)
    assert event["task"]["code"] == "echo hi"
    assert (event["mode"], event["payload"], event["timeout_seconds"]) == (
        "detached",
        {"n": 1},
        1_000,
    )
    assert status_of(world, key) is RunStatus.CLAIMED


def test_run_is_running_when_its_runner_begins_and_not_before(world: ContainersWorld) -> None:
    key = world.start_script()
    world.ecs.run(world.task)
    world.deliver_events()
    assert status_of(world, key) is RunStatus.CLAIMED, "the container runs, the script does not"
    Runner(world).renew()
    assert status_of(world, key) is RunStatus.RUNNING


def test_runner_finishes_the_run_and_the_end_of_its_task_changes_nothing(
    world: ContainersWorld,
) -> None:
    key = world.start_script()
    runner = run_task(world)
    assert runner.renew(b"half\n") == "OK"
    assert runner.finish(output=b"out", output_type="text/plain", exit_code=0, log_offset=5) == "OK"
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code, view.run.attempt) == (RunStatus.SUCCESS, 0, 1)
    assert world.log_of(key) == b"half\n"
    assert world.rows.load_all() == []


def test_what_a_task_read_is_deleted_at_its_end(world: ContainersWorld) -> None:
    world.start_script()
    runner = run_task(world)
    assert [name for name in world.scene.blobs if name.endswith("/run.json")]
    runner.finish()
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert [name for name in world.scene.blobs if name.endswith(".json")] == []


def test_late_end_of_a_former_start_leaves_the_next_one_its_event(world: ContainersWorld) -> None:
    world.start_script()
    first = world.task
    world.ecs.fail_start(first, "Capacity is unavailable at this time.")
    (late_event,) = world.ecs.events[-1:]
    world.deliver_events()
    world.pass_without_sweep(timedelta(seconds=15))
    world.execute()
    assert world.task is not first
    world.handler.handle(late_event)
    assert world.runner_event(world.task)["task"]["code"] == "echo hi"


def test_secret_of_a_script_stands_in_no_call_and_in_no_object(world: ContainersWorld) -> None:
    world.use_secrets({"token": TOKEN_ARN})
    world.start_script(
        {"env": {"URL": "https://a/?key={{secret:token}}&n={{payload.n}}"}},
        payload={"n": "[secret random-token2]"},
    )
    (definition,) = world.ecs.definitions.values()
    (container,) = definition["containerDefinitions"]
    (secret,) = container["secrets"]
    assert secret["valueFrom"] == TOKEN_ARN
    event = world.runner_event(world.task)
    assert event["secrets"] == []
    environment = {secret["name"]: "hush-hush"}
    attempt = read_event(event, environment).attempt
    assert attempt.task["env"] == {"URL": "https://a/?key=hush-hush&n=[secret random-token2]"}
    assert attempt.secrets == {"hush-hush"}
    assert "hush" not in json.dumps(event)


def test_scripts_with_the_same_secrets_share_a_definition(world: ContainersWorld) -> None:
    world.use_secrets({"token": TOKEN_ARN})
    for name in ("A", "B"):
        world.start_script({"env": {name: "{{secret:token}}"}})
    assert len(world.ecs.definitions) == 1


def test_large_script_gets_a_container_of_its_size(world: ContainersWorld) -> None:
    world.start_script({"resources": {"memory_mb": 4_000}}, timeout_seconds=60)
    (definition,) = world.ecs.definitions.values()
    assert (definition["cpu"], definition["memory"]) == ("1024", "5120")
    assert world.runner_event(world.task)["task"]["resources"] == {"memory_mb": 4_000}


def test_script_that_fits_no_container_of_the_stage_fails(world: ContainersWorld) -> None:
    key = world.scene.submit(
        task={"type": "script", "runtime": "bash", "code": "x", "resources": {"memory_mb": 40_000}}
    )
    world.execute()
    error = world.run_of(key).detail.error
    assert error.startswith(
        "resources.memory_mb must be at most 30,592 for a script in a container"
    )


def test_container_that_dies_with_its_script_is_a_lost_attempt(world: ContainersWorld) -> None:
    key = world.start_script()
    run_task(world)
    first = world.task
    world.ecs.exit(first, 137, "OutOfMemoryError: container killed due to memory usage")
    world.deliver_events()
    world.execute()
    view = world.run_of(key)
    assert (view.run.attempt, view.run.past_attempts) == (2, "L")
    assert world.task is not first
    assert view.attempts[0].detail.error == (
        "The container ended before its runner reported the result, with exit code 137: "
        "Essential container in task exited: OutOfMemoryError: container killed due to memory usage"
    )


def test_container_that_dies_with_its_script_fails_a_job_that_runs_at_most_once(
    world: ContainersWorld,
) -> None:
    key = world.start_script(delivery="AT_MOST_ONCE")
    run_task(world)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert status_of(world, key) is RunStatus.FAILED, "exit code 0 without a result is no success"


def test_container_that_dies_before_its_script_is_no_attempt(world: ContainersWorld) -> None:
    key = world.start_script(delivery="AT_MOST_ONCE")
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 64)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.WAITING, 1)


def test_runner_of_a_lost_attempt_reaches_nothing(world: ContainersWorld) -> None:
    key = world.start_script()
    late = run_task(world)
    world.ecs.reclaim(world.task)
    world.deliver_events()
    world.execute()
    assert (late.renew(), late.finish()) == ("LOST", "LOST")
    assert status_of(world, key) is RunStatus.CLAIMED


def test_frozen_runner_ends_some_minutes_after_the_timeout(world: ContainersWorld) -> None:
    key = world.start_script(max_retries=0)
    run_task(world)
    limit = TIMEOUT + RUNNER_END_LIMIT
    world.sweep(minutes=limit // timedelta(minutes=1))
    assert world.task.stop_requests == [], "the runner itself has the timeout"
    world.sweep()
    assert world.task.stop_requests == ["Punctual: TIMEOUT"]
    world.ecs.stop_requested(world.task, 137)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.error) == (RunStatus.TIMED_OUT, "Timed out after 1000 s")


def test_cancel_reaches_the_runner_by_its_next_renewal(world: ContainersWorld) -> None:
    key = world.start_script()
    runner = run_task(world)
    world.cancel(key)
    assert runner.renew() == "CANCEL"
    assert runner.finish("CANCELLED", error="Cancelled", exit_code=143) == "OK"
    world.ecs.exit(world.task, 143)
    world.deliver_events()
    assert status_of(world, key) is RunStatus.CANCELLED
    assert world.rows.load_all() == []


def test_cancel_before_the_runner_begins_stops_the_task(world: ContainersWorld) -> None:
    key = world.start_script()
    world.cancel(key)
    world.sweep()
    assert world.task.stop_requests == ["Punctual: CANCEL"]
    world.ecs.stop_requested(world.task, None)
    world.deliver_events()
    assert status_of(world, key) is RunStatus.CANCELLED


def test_slow_start_is_stopped_and_no_attempt(world: ContainersWorld) -> None:
    key = world.start_script()
    world.sweep(minutes=5)
    assert world.task.stop_requests == ["Punctual: START"]
    world.ecs.stop_requested(world.task, None)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.WAITING, 1)


def test_start_without_capacity_leaves_no_event_behind(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", Failures("RESOURCE:MEMORY"))
    key = world.scene.submit(
        task={"type": "script", "runtime": "bash", "code": "x"}, timeout_seconds=1_000
    )
    world.execute()
    assert status_of(world, key) is RunStatus.WAITING
    assert [name for name in world.scene.blobs if name.endswith(".json")] == []


@pytest.mark.parametrize("is_script", [True, False])
def test_starts_that_fail_again_and_again_end_the_run(
    world: ContainersWorld, is_script: bool
) -> None:
    key = world.start_script() if is_script else world.start()
    for _ in range(MAX_FAILED_STARTS):
        assert status_of(world, key) is RunStatus.CLAIMED
        world.sweep(minutes=5)
        world.ecs.stop_requested(world.task, None)
        world.deliver_events()
        world.pass_without_sweep(timedelta(minutes=6))
        world.execute()
    view = world.run_of(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.FAILED, 1)
    assert view.detail.error == (
        "The run could not be started 30 times: The container did not start in 5 minutes: "
        "Punctual: START"
    )
    assert len(world.ecs.tasks) == MAX_FAILED_STARTS


def test_starts_without_capacity_end_the_run(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[Failures("Capacity is unavailable")] * MAX_FAILED_STARTS)
    key = world.submit()
    for _ in range(MAX_FAILED_STARTS):
        world.execute()
        world.pass_without_sweep(timedelta(minutes=6))
    view = world.run_of(key)
    assert view.run.status is RunStatus.FAILED
    assert view.detail.error.endswith("30 times: ECS started no task: Capacity is unavailable")
