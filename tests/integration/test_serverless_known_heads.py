"""An end that does not read the head again: the same rows, and nothing that others did is lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import Key
from punctual.lambdas.executor import state_cache
from tests.builders import after
from tests.integration.executor_world import ExecutorWorld, executor_world
from tests.integration.moto_faults import lost_answers, refused


@pytest.fixture
def world() -> Iterator[ExecutorWorld]:
    with executor_world() as made:
        yield made


def rows_of_a_life(monkeypatch: pytest.MonkeyPatch, fresh: float) -> tuple[dict[str, Any], int]:
    monkeypatch.setattr(state_cache, "FRESH", fresh)
    with executor_world() as world:
        keys = [world.submit(payload={"out": "x" * 40}) for _ in range(2)]
        keys.append(world.submit(payload={"error": "no"}, max_retries=1))
        keys.append(world.submit(schedule_type="CRON", cron_expression="* * * * *"))
        world.jobs.run_now(*keys[-1])
        world.jobs.run_now(*keys[-1])
        records = world.records()
        spent = world.aws.spend(lambda: world.invoke(records))
        rows = {name: sorted(map(str, world.aws.rows(name))) for name in ("jobs", "timers", "runs")}
        return rows, spent["BatchGetItem"]


def test_rows_are_the_same_whether_the_head_was_read_again_or_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, fewer = rows_of_a_life(monkeypatch, 5.0)
    read, more = rows_of_a_life(monkeypatch, 0.0)
    assert known == read
    assert fewer < more


def ended_after(world: ExecutorWorld, key: Key, what: Any) -> None:
    """One invocation of a run that lasts a second, in whose middle something else happens."""
    world.hands.at(after(0.5), what)
    world.invoke(world.records())


def test_who_wrote_meanwhile_is_read_and_stands(world: ExecutorWorld) -> None:
    key = world.submit(
        schedule_type="CRON", cron_expression="0 0 * * *", concurrency="ALLOW", payload={"lasts": 1}
    )
    first = world.jobs.run_now(*key)
    ended_after(world, key, lambda: world.jobs.run_now(*key))
    assert world.search.run(*key, first.run.run_id).run.status is RunStatus.SUCCESS
    (record,) = world.records()
    world.invoke([record])
    (head,) = world.runtime.ports.heads.load([key]).values()
    assert head.head.runs == ()


def test_a_run_that_became_anothers_is_not_ended(world: ExecutorWorld) -> None:
    key = world.submit(payload={"lasts": 1})
    (record,) = world.records()

    def given_back() -> None:
        (stored,) = world.runtime.ports.heads.load([key]).values()
        (run,) = stored.head.runs
        world.runtime.executor.release(key, run.run_id, run.token, begun=True)

    world.hands.at(after(0.5), given_back)
    world.invoke([record])
    assert world.status(key) is RunStatus.QUEUED
    assert "run_taken_over" in [name for name, _ in world.tell.lines]


def test_an_end_whose_answer_was_lost_is_not_ended_twice(world: ExecutorWorld) -> None:
    key = world.submit(payload={"lasts": 1, "error": "no"}, max_retries=2)
    (record,) = world.records()
    lost: list[Any] = []

    def begin() -> None:
        lost.append(lost_answers(world.aws.clients.dynamodb, "UpdateItem", 1))
        lost[0].__enter__()

    world.hands.at(after(0.5), begin)
    world.invoke([record])
    lost[0].__exit__(None, None, None)
    run = world.run(key).run
    assert (run.status, run.attempt) == (RunStatus.WAITING, 2), "one attempt failed, not two"


def test_a_store_that_refuses_for_a_while_is_asked_anew(world: ExecutorWorld) -> None:
    key = world.submit(payload={"lasts": 1})
    (record,) = world.records()
    refusing: list[Any] = []

    def begin() -> None:
        client = world.aws.clients.dynamodb
        refusing.append(refused(client, "UpdateItem", 5, "ThrottlingException"))
        refusing[0].__enter__()

    world.hands.at(after(0.5), begin)
    world.invoke([record])
    refusing[0].__exit__(None, None, None)
    assert world.status(key) is RunStatus.SUCCESS
