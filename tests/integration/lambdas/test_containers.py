"""The failures of other projects with ECS, each played by the stand-in and told by its name.

The numbers are those of the page on running code. Around them are the usual ways of a container.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from punctual.domain.run import RunStatus
from punctual.tasks.container.next_step import CONTAINER_LEASE, START_DEADLINE
from tests.support.containers.ecs import Failures, LostAnswer, Refusal
from tests.support.containers.world import IMAGE, ContainersWorld, containers_world

RATE_EXCEEDED = Refusal(
    "InvalidParameterException", "Rate exceeded (Service: AmazonECS; Error Code: Throttling)"
)
CONCURRENT_REVISIONS = Refusal(
    "ClientException", "Too many concurrent attempts to create a new revision"
)
SECOND = timedelta(seconds=1)


@pytest.fixture
def world() -> Iterator[ContainersWorld]:
    with containers_world() as made:
        yield made


# The usual ways


def test_container_runs_from_its_claim_to_its_exit_code(world: ContainersWorld) -> None:
    key = world.start({"command": ["report", "{{payload.day}}"]}, payload={"day": "monday"})
    assert world.run_of(key).run.status is RunStatus.CLAIMED
    task = world.task
    assert task.command == ["report", "monday"]
    assert task.environment["PUNCTUAL_RUN_ID"] == world.run_of(key).run.run_id
    payload_name = task.environment["PUNCTUAL_PAYLOAD_URL"].removeprefix(
        "https://bucket.example.com/"
    )
    assert world.scene.blobs[payload_name] == b'{"day":"monday"}'
    world.ecs.run(task)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.RUNNING
    world.ecs.print(task, "hello", "done")
    world.ecs.exit(task, 0)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code) == (RunStatus.SUCCESS, 0)
    assert world.log_of(key) == b"hello\ndone\n"
    assert world.rows.load_all() == []


def test_failed_container_tells_its_last_lines(world: ContainersWorld) -> None:
    key = world.start(max_retries=0)
    world.ecs.run(world.task)
    world.ecs.print(world.task, "no such table")
    world.ecs.exit(world.task, 3)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code) == (RunStatus.FAILED, 3)
    assert view.detail.error == "Exit code 3\nno such table"


def test_discarded_output_stores_no_log(world: ContainersWorld) -> None:
    key = world.start(output="discard")
    world.ecs.run(world.task)
    world.ecs.print(world.task, "secret figures")
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS
    assert not [name for name in world.scene.blobs if name.startswith("logs/")]


def test_failed_container_is_retried_as_a_new_task(world: ContainersWorld) -> None:
    key = world.start(retry={"backoff_seconds": 30, "jitter": False})
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 1)
    world.deliver_events()
    first = world.task
    assert world.run_of(key).run.status is RunStatus.WAITING
    world.sweep()
    world.execute()
    assert world.task is not first
    assert world.run_of(key).run.attempt == 2


def test_cancelled_run_stops_its_task_with_grace(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.deliver_events()
    world.cancel(key)
    run_id = world.run_of(key).run.run_id
    world.handler.handle(
        {
            "source": "punctual",
            "detail-type": "Container Stop Requested",
            "detail": {"run_ids": [run_id]},
        }
    )
    assert world.task.stop_requests == ["Punctual: CANCEL"]
    assert world.run_of(key).run.status is RunStatus.RUNNING  # the container has its grace
    world.ecs.stop_requested(world.task, 143)
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code) == (RunStatus.CANCELLED, 143)


def test_lost_request_to_stop_is_found_by_the_sweep(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.deliver_events()
    world.cancel(key)
    world.sweep()
    assert world.task.stop_requests == ["Punctual: CANCEL"]


def test_timeout_stops_the_task_and_ends_the_attempt(world: ContainersWorld) -> None:
    key = world.start(timeout_seconds=120, max_retries=0)
    world.ecs.run(world.task)
    world.deliver_events()
    world.sweep(minutes=2)
    assert world.task.stop_requests[0] == "Punctual: TIMEOUT"
    world.ecs.stop_requested(world.task, 137)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.TIMED_OUT


def test_secret_goes_to_the_task_by_reference(world: ContainersWorld) -> None:
    arn = "arn:aws:ssm:eu-west-1:1:parameter/punctual/dev/secrets/acme/token"
    world.use_secrets({"token": arn})
    world.start({"env": {"TOKEN": "{{secret:token}}", "MODE": "fast"}})
    task = world.task
    (definition,) = world.ecs.definitions.values()
    (container,) = definition["containerDefinitions"]
    assert container["secrets"] == [{"name": "TOKEN", "valueFrom": arn}]
    assert "TOKEN" not in task.environment
    assert task.environment["MODE"] == "fast"


def test_stage_without_free_processors_returns_the_run_to_its_queue() -> None:
    with containers_world(max_vcpu=1) as world:
        first = world.start({"resources": {"cpu": 1, "memory_mb": 2_048}})
        second = world.submit({"resources": {"cpu": 0.25, "memory_mb": 512}})
        (outcome,) = world.execute()
        assert not outcome.begun
        assert world.run_of(second).run.attempt == 1
        world.ecs.run(world.task)
        world.ecs.exit(world.task, 0)
        world.deliver_events()
        world.sweep()
        assert world.run_of(first).run.status is RunStatus.SUCCESS
        assert [outcome.status for outcome in world.execute()] == ["DETACHED"]


# The fifteen failures


def test_case_01_throttle_that_arrives_as_an_invalid_parameter(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[RATE_EXCEEDED] * 20)
    key = world.submit()
    (outcome,) = world.execute()
    assert not outcome.begun
    run = world.run_of(key).run
    assert (run.attempt, run.past_attempts) == (1, "")  # no attempt
    assert run.status is RunStatus.WAITING
    world.ecs.faults.clear()
    world.sweep()
    assert [outcome.status for outcome in world.execute()] == ["DETACHED"]
    assert len(world.ecs.tasks) == 1


def test_case_02_answer_without_a_task(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", Failures("RESOURCE:MEMORY"))
    key = world.submit(delivery="AT_MOST_ONCE", max_retries=0)
    (outcome,) = world.execute()
    assert not outcome.begun
    assert world.rows.load_all() == []
    world.sweep()
    world.execute()
    assert world.run_of(key).run.past_attempts == ""
    assert len(world.ecs.tasks) == 1


def test_case_03_half_an_hour_of_provisioning_and_empty_containers(
    world: ContainersWorld,
) -> None:
    key = world.start(max_retries=0)
    words = "ResourceInitializationError: unable to pull secrets or registry auth"
    world.ecs.fail_start(world.task, words)
    world.deliver_events()
    view = world.run_of(key)
    assert view.run.status is RunStatus.FAILED
    assert view.detail.error == f"The container could not be started: {words}"


def test_case_03_our_own_deadline_is_far_earlier(world: ContainersWorld) -> None:
    world.start()
    world.sweep(minutes=5)
    assert world.task.stop_requests == ["Punctual: START"]


def test_case_04_null_exit_code_is_no_success(world: ContainersWorld) -> None:
    key = world.start(max_retries=0)
    world.ecs.exit(world.task, None, "CannotPullContainerError: manifest unknown")
    world.deliver_events()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code) == (RunStatus.FAILED, None)
    assert "CannotPullContainerError: manifest unknown" in view.detail.error


def test_case_05_task_that_never_leaves_pending(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.pend(world.task)
    world.deliver_events()
    first = world.task
    world.sweep(minutes=START_DEADLINE // timedelta(minutes=1))
    assert first.stop_requests
    world.ecs.stop_requested(first, None)
    world.deliver_events()
    run = world.run_of(key).run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.WAITING, 1, "")
    world.sweep()
    world.execute()
    second = world.task
    assert second.params["clientToken"] != first.params["clientToken"]
    world.ecs.run(second)
    world.ecs.exit(second, 0)
    world.deliver_events()
    run = world.run_of(key).run
    assert (run.status, run.attempt) == (RunStatus.SUCCESS, 1)
    ((event, fields),) = world.log.problems
    assert event == "start_failed"
    assert "did not start in 5 minutes" in fields["reason"]


def test_case_06_too_many_concurrent_revisions(world: ContainersWorld) -> None:
    world.ecs.plant("RegisterTaskDefinition", CONCURRENT_REVISIONS, CONCURRENT_REVISIONS)
    for _ in range(3):
        world.start()
    assert len(world.ecs.definitions) == 1
    assert world.ecs.count("RegisterTaskDefinition") == 3  # twice refused, and once for all


def test_case_07_describe_is_throttled_for_hours(world: ContainersWorld) -> None:
    key = world.start(timeout_seconds=86_400)
    world.ecs.run(world.task)
    world.deliver_events()
    world.ecs.plant("DescribeTasks", *[RATE_EXCEEDED] * 10_000)
    world.sweep(minutes=2 * 60)
    assert world.task.stop_requests == []
    run = world.run_of(key).run
    assert (run.status, run.attempt) == (RunStatus.RUNNING, 1)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS


def test_case_07_tasks_are_described_in_batches() -> None:
    with containers_world(max_vcpu=100) as world:
        for _ in range(120):
            world.submit()
        while world.execute():
            world.scene.world.now += SECOND
            world.evaluate()
        world.ecs.calls.clear()
        world.handler.sweep()
        assert world.ecs.count("DescribeTasks") == 2


def test_case_08_silent_watcher_marks_no_living_run(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.deliver_events()
    world.sweep()
    world.pass_without_sweep(CONTAINER_LEASE - SECOND)  # three sweeps are missed
    assert world.run_of(key).run.status is RunStatus.RUNNING
    world.sweep()
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS


def test_case_08_late_success_without_the_fence_changes_nothing(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.deliver_events()
    first = world.task
    world.pass_without_sweep(CONTAINER_LEASE + SECOND)
    assert world.run_of(key).run.past_attempts == "L"
    world.execute()
    second = world.task
    world.ecs.exit(first, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.CLAIMED
    assert [event for event, _ in world.log.events if event == "late_end"] == ["late_end"]
    world.ecs.run(second)
    world.ecs.exit(second, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS


def test_case_09_one_token_for_all_attempts_would_find_the_dead_task(
    world: ContainersWorld,
) -> None:
    key = world.start(retry={"backoff_seconds": 30, "jitter": False})
    tokens = []
    for _ in range(3):
        tokens.append(world.task.params["clientToken"])
        world.ecs.run(world.task)
        world.ecs.exit(world.task, 1)
        world.deliver_events()
        world.sweep(minutes=3)
        world.execute()
    assert len(set(tokens)) == 3
    assert len(world.ecs.tasks) == 4
    assert world.run_of(key).run.attempt == 4


def test_case_10_timed_out_call_starts_no_second_task(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", LostAnswer(), LostAnswer())
    key = world.start()
    assert len(world.ecs.tasks) == 1
    world.ecs.run(world.task)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.RUNNING


def test_case_10_start_without_any_answer_is_found_by_the_sweep(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[LostAnswer()] * 50)
    key = world.start()
    world.lose_events()
    assert [row.arn for row in world.rows.load_all()] == [""]
    world.sweep()
    assert [row.arn for row in world.rows.load_all()] == [world.task.arn]
    world.ecs.run(world.task)
    world.lose_events()
    world.sweep()
    assert world.run_of(key).run.status is RunStatus.RUNNING
    assert len(world.ecs.tasks) == 1


def test_case_10_start_that_never_reached_ecs_is_no_attempt(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[Refusal("ServerException", "internal", 500)] * 50)
    key = world.start()
    world.ecs.faults.clear()
    world.sweep(minutes=2)
    world.execute()
    assert world.run_of(key).run.past_attempts == ""
    assert len(world.ecs.tasks) == 1


def test_case_11_log_stream_that_does_not_exist_yet(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    view = world.run_of(key)
    assert view.run.status is RunStatus.SUCCESS
    assert (view.detail.log_blob, world.log.problems) == ("", [])


def test_case_11_log_service_that_fails_holds_up_no_end(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.plant("GetLogEvents", Refusal("AccessDeniedException", "not authorized"))
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS
    assert [event for event, _ in world.log.problems] == ["log_not_read"]


def test_case_11_cut_log_is_flagged(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.run(world.task)
    world.ecs.print(world.task, *["x" * 1_000] * 400)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).detail.log_truncated


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("OutOfMemoryError: Container killed due to memory usage", "used more than 512 MB"),
        ("", "killed by SIGKILL, and ECS names no lack of memory"),
    ],
)
def test_case_12_exit_code_137_ends_the_run_and_frees_its_place(
    world: ContainersWorld, reason: str, text: str
) -> None:
    key = world.start(max_retries=0)
    world.ecs.run(world.task)
    world.deliver_events()
    world.ecs.exit(world.task, 137, reason)
    world.lose_events()  # the sweep alone must find it
    world.sweep()
    view = world.run_of(key)
    assert (view.run.status, view.detail.exit_code) == (RunStatus.FAILED, 137)
    assert text in view.detail.error
    world.sweep()
    assert world.parts.quota.used_cpu_units() == 0


def test_case_13_children_end_with_their_container(world: ContainersWorld) -> None:
    world.start()
    (definition,) = world.ecs.definitions.values()
    (container,) = definition["containerDefinitions"]
    # The init process reaps orphans. The kernel kills all others when it ends.
    assert container["linuxParameters"] == {"initProcessEnabled": True}
    assert container["essential"] is True


def test_case_14_sweep_stops_no_frozen_but_living_run(world: ContainersWorld) -> None:
    key = world.start(timeout_seconds=86_400)
    world.ecs.run(world.task)
    world.deliver_events()
    world.sweep(minutes=30)  # the process is frozen: it neither renews nor prints
    assert world.task.stop_requests == []
    run = world.run_of(key).run
    assert (run.status, run.attempt) == (RunStatus.RUNNING, 1)


def test_case_14_sweep_stops_an_orphan_without_a_claim(world: ContainersWorld) -> None:
    world.start()
    world.ecs.run(world.task)
    world.deliver_events()
    orphan = world.task
    world.pass_without_sweep(CONTAINER_LEASE + SECOND)
    world.execute()
    world.sweep()
    assert orphan.stop_requests == ["Punctual: LOST"]
    assert world.task.stop_requests == []


def test_case_15_spot_reclaim_is_an_attempt_of_its_own(world: ContainersWorld) -> None:
    key = world.start(max_retries=0)
    world.ecs.run(world.task)
    world.deliver_events()
    first = world.task
    world.ecs.reclaim(first)
    world.deliver_events()
    run = world.run_of(key).run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.QUEUED, 2, "L")
    assert len(world.ecs.tasks) == 1  # the platform retries nothing
    world.execute()
    assert world.task is not first
    (attempt,) = world.run_of(key).attempts
    assert attempt.detail.error == (
        "Fargate took back the Spot capacity of the task: Your Spot Task was interrupted."
    )


def test_case_15_reclaim_fails_a_run_that_may_start_only_once(world: ContainersWorld) -> None:
    key = world.start(delivery="AT_MOST_ONCE", max_retries=0)
    world.ecs.run(world.task)
    world.ecs.reclaim(world.task)
    world.deliver_events()
    view = world.run_of(key)
    assert view.run.status is RunStatus.FAILED
    assert "Spot capacity" in view.detail.error


# Events of ECS repeat, and arrive out of order


def test_events_in_any_order_and_twice_end_the_run_once(world: ContainersWorld) -> None:
    key = world.start()
    world.ecs.pend(world.task)
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events(3, 1, 2, 3, 0, 2)
    view = world.run_of(key)
    assert (view.run.status, view.run.attempt) == (RunStatus.SUCCESS, 1)
    assert (world.task.stop_requests, world.log.problems) == ([], []), "a late event is no orphan"


def test_event_of_another_program_is_left_alone(world: ContainersWorld) -> None:
    world.start()
    event = world.task.event()
    event["detail"]["startedBy"] = "ecs-svc/123"
    world.handler.handle(event)
    assert [event for event, _ in world.log.problems] == []


def test_task_without_a_row_is_stopped(world: ContainersWorld) -> None:
    world.start()
    world.rows.delete([world.task.start_id])  # its claim was given up while its start hung
    world.deliver_events()
    assert world.task.stop_requests == ["Punctual: LOST"]


def test_image_of_the_job_is_that_of_the_definition(world: ContainersWorld) -> None:
    world.start()
    (definition,) = world.ecs.definitions.values()
    assert definition["containerDefinitions"][0]["image"] == IMAGE


def test_unused_definitions_are_removed_once_a_day(world: ContainersWorld) -> None:
    world.start()
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    world.scene.world.now += timedelta(days=31)
    world.scene.world.now = world.scene.world.now.replace(hour=4, minute=7)
    for _ in range(20):
        world.scene.world.now += timedelta(minutes=1)
        world.handler.sweep()
    assert world.ecs.definitions == {}
    assert world.ecs.count("DeregisterTaskDefinition") == 1
