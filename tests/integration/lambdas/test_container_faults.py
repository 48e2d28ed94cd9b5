"""Stores and services that do not answer while a container starts, and starts that fail.

If a container certainly did not begin, its run goes back to the queue without an attempt. While a
container may run, its attempt is not failed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.tasks.container.next_step import CONTAINER_LEASE, START_DEADLINE, SWEEP_INTERVAL
from tests.support.containers.ecs import Failures, LostAnswer, Refusal
from tests.support.containers.world import ContainersWorld, containers_world


@pytest.fixture
def world() -> Iterator[ContainersWorld]:
    with containers_world() as made:
        yield made


def unavailable(*_: Any, **__: Any) -> Any:
    raise Unavailable("The store does not answer")


def quota(world: ContainersWorld) -> Any:
    return world.parts.quota


def definitions(world: ContainersWorld) -> Any:
    return world.parts.definitions


def rows(world: ContainersWorld) -> Any:
    return world.rows


def blobs(world: ContainersWorld) -> Any:
    return world.scene.ports.blobs


Part = Callable[[ContainersWorld], Any]


@pytest.mark.parametrize(
    ("part", "call"),
    [(quota, "take"), (definitions, "find_or_register"), (blobs, "put"), (rows, "put")],
    ids=["quota", "definition", "payload", "row"],
)
def test_store_that_fails_before_the_start_is_no_attempt(
    world: ContainersWorld, monkeypatch: pytest.MonkeyPatch, part: Part, call: str
) -> None:
    key = world.submit(max_retries=0, delivery="AT_MOST_ONCE")
    with monkeypatch.context() as patch:
        patch.setattr(part(world), call, unavailable)
        (outcome,) = world.execute()
    assert (outcome.begun, outcome.error) == (False, "The store does not answer")
    assert world.ecs.tasks == {}
    assert world.parts.quota.used_cpu_units() == 0
    run = world.run_of(key).run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.WAITING, 1, "")
    world.sweep()
    assert [outcome.status for outcome in world.execute()] == ["DETACHED"]


def test_lease_that_is_not_extended_starts_nothing(world: ContainersWorld) -> None:
    world.extends_leases = False
    key = world.submit()
    (outcome,) = world.execute()
    assert not outcome.begun
    assert world.ecs.tasks == {}
    assert world.rows.load_all() == []
    assert world.parts.quota.used_cpu_units() == 0
    assert world.run_of(key).run.past_attempts == ""


def test_permit_that_cannot_be_released_fails_no_attempt(
    world: ContainersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.parts.quota, "release", unavailable)
    world.extends_leases = False
    world.submit()
    (outcome,) = world.execute()
    assert not outcome.begun


def test_start_that_may_have_happened_is_left_to_the_sweep(
    world: ContainersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = world.parts.tasks.start

    def start_without_answer(wanted: Any) -> Any:
        start(wanted)
        raise Unavailable("AWS did not answer while starting a task")

    monkeypatch.setattr(world.parts.tasks, "start", start_without_answer)
    key = world.start()
    world.lose_events()
    assert world.run_of(key).run.status is RunStatus.CLAIMED
    world.sweep()
    assert [row.arn for row in world.rows.load_all()] == [world.task.arn]
    assert len(world.ecs.tasks) == 1


def test_started_task_whose_arn_is_not_written_ends_its_run(
    world: ContainersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(world.rows, "set_arn", unavailable)
        key = world.start(max_retries=0)
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    run = world.run_of(key).run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.SUCCESS, 1, "")


def test_refused_start_whose_row_is_not_deleted_is_no_attempt(
    world: ContainersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ecs.plant("RunTask", Failures("RESOURCE:MEMORY"))
    with monkeypatch.context() as patch:
        patch.setattr(world.rows, "delete", unavailable)
        world.submit()
        (outcome,) = world.execute()
    assert not outcome.begun
    assert len(world.rows.load_all()) == 1
    world.sweep()  # it finds no task, and the claim is not held any more
    world.sweep()
    assert world.rows.load_all() == []


DEADLINE_SWEEPS = START_DEADLINE // SWEEP_INTERVAL
LEASE_SWEEPS = CONTAINER_LEASE // SWEEP_INTERVAL
DENIED = Refusal("AccessDeniedException", "not authorized")


def test_start_that_ecs_cannot_tell_ends_with_its_lease(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[LostAnswer()] * 50)
    key = world.start()
    world.lose_events()
    world.ecs.plant("ListTasks", *[DENIED] * 1_000)
    world.sweep(minutes=DEADLINE_SWEEPS - 1)
    assert world.run_of(key).run.status is RunStatus.CLAIMED
    world.sweep(minutes=LEASE_SWEEPS + 1)
    run = world.run_of(key).run
    assert (run.attempt, run.past_attempts) == (2, "L")


def test_cancel_of_a_start_that_ecs_cannot_tell_takes_effect(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[LostAnswer()] * 50)
    key = world.start()
    world.lose_events()
    world.ecs.plant("ListTasks", *[DENIED] * 1_000)
    world.cancel(key)
    world.sweep(minutes=DEADLINE_SWEEPS + LEASE_SWEEPS)
    assert world.run_of(key).run.status is RunStatus.CANCELLED
    world.ecs.faults.clear()
    world.sweep(minutes=2)  # the task that ran unseen is found at last
    assert world.task.stop_requests == ["Punctual: LOST"]


def test_task_that_ended_unseen_gives_its_exit_code(world: ContainersWorld) -> None:
    world.ecs.plant("RunTask", *[LostAnswer()] * 50)
    key = world.start()
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.lose_events()
    world.sweep(minutes=2)
    run = world.run_of(key).run
    assert (run.status, run.attempt) == (RunStatus.SUCCESS, 1)
    assert len(world.ecs.tasks) == 1


def test_want_of_capacity_is_no_attempt_and_starts_again(world: ContainersWorld) -> None:
    key = world.start(max_retries=0, delivery="AT_MOST_ONCE")
    world.ecs.fail_start(world.task, "Capacity is unavailable at this time.")
    world.deliver_events()
    run = world.run_of(key).run
    assert (run.status, run.attempt, run.past_attempts) == (RunStatus.WAITING, 1, "")
    assert world.rows.load_all() == []
    world.sweep()
    world.execute()
    assert len(world.ecs.tasks) == 2
    world.ecs.run(world.task)
    world.ecs.exit(world.task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS


def test_cancelled_run_is_not_started_again_for_want_of_capacity(world: ContainersWorld) -> None:
    key = world.start()
    world.cancel(key)
    world.ecs.fail_start(world.task, "Capacity is unavailable at this time.")
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.CANCELLED
