"""Dead letters: runs whose message came back too often end, and nothing fails in silence."""

from collections.abc import Iterator
from typing import Any

import pytest

from punctual.aws.queue import parse_message
from punctual.domain.run import Reason, Status
from punctual.serverless.burying import Burying
from punctual.serverless.telling import Metric
from tests.builders import after
from tests.integration.executor_world import ExecutorWorld, executor_world
from tests.integration.moto_faults import refused


@pytest.fixture
def world() -> Iterator[ExecutorWorld]:
    with executor_world() as made:
        yield made


def bury(world: ExecutorWorld, records: list[dict[str, Any]]) -> list[str]:
    answer = Burying(world.new_runtime()).handle({"Records": records})
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def test_a_dead_letter_ends_its_run_as_failed_with_the_reason(world: ExecutorWorld) -> None:
    key = world.submit()
    assert bury(world, world.records()) == []
    run = world.run(key).run
    assert (run.status, run.reason) == (Status.FAILED, Reason.POISON)
    assert world.tell.count(Metric.DEAD_LETTERS) == 1
    ((name, said),) = world.tell.problems
    assert (name, said["run_id"], said["status"]) == ("run_poisoned", run.run_id, "FAILED")


def test_a_dead_letter_lets_the_next_in_line_go_on(world: ExecutorWorld) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    first = world.jobs.run_now(*key)
    second = world.jobs.run_now(*key)
    (record,) = world.records()
    assert bury(world, [record]) == []
    assert world.search.run(*key, first.run.run_id).run.status is Status.FAILED
    assert world.search.run(*key, second.run.run_id).run.status is Status.QUEUED


def test_a_run_that_is_being_worked_on_is_left_alone(world: ExecutorWorld) -> None:
    key = world.submit(payload={"lasts": 10})
    (record,) = world.records()
    seen: list[Any] = []
    world.hands.at(after(5), lambda: seen.append(bury(world, [record])))
    world.invoke([record])
    assert seen == [[]]
    assert world.status(key) is Status.SUCCESS
    assert [name for name, _ in world.tell.lines] == ["dead_letter_stale", "run_ended"]


def test_a_letter_from_before_the_last_claim_says_nothing_of_the_next(
    world: ExecutorWorld,
) -> None:
    """The run was claimed since, lost, and sent anew: it is that message which counts."""
    key = world.submit()
    (record,) = world.records()
    runtime = world.new_runtime()
    message = parse_message(record["body"])
    (one,) = runtime.executor.claim([message]).granted
    runtime.executor.release(one.key, one.run.run_id, one.run.token, begun=True)
    assert bury(world, [record]) == []
    assert world.status(key) is Status.QUEUED
    assert world.tell.problems == []


def test_what_cannot_be_read_is_told_in_full_and_does_not_come_again(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    garbage = {**record, "messageId": "garbage", "body": '{"f":2,"t":"acme"}'}
    assert bury(world, [garbage, record]) == []
    name, said = world.tell.problems[0]
    assert (name, said["message_id"]) == ("dead_letter_unreadable", "garbage")
    assert said["body"] == garbage["body"]
    assert world.tell.count(Metric.DEAD_LETTERS) == 2
    assert world.status(key) is Status.FAILED


def test_a_letter_that_could_not_be_dealt_with_comes_again(world: ExecutorWorld) -> None:
    key = world.submit()
    (record,) = world.records()
    with refused(world.aws.clients.dynamodb, "UpdateItem", 99, "ThrottlingException"):
        assert bury(world, [record]) == [record["messageId"]]
    assert world.status(key) is Status.QUEUED
    assert world.tell.problems[0][0] == "dead_letters_kept"
    assert bury(world, [record]) == []
    assert world.status(key) is Status.FAILED


def test_a_letter_of_a_job_that_is_gone_is_done_with(world: ExecutorWorld) -> None:
    world.submit()
    (record,) = world.records()
    for row in world.aws.rows("jobs"):
        key = {name: row[name] for name in ("pk", "sk")}
        world.aws.clients.dynamodb.delete_item(TableName="jobs", Key=key)
    assert bury(world, [record]) == []
    assert world.tell.lines[0][1]["verdict"] == "GONE"


def test_a_letter_of_a_head_that_nobody_can_read_is_told_and_keeps_no_other(
    world: ExecutorWorld,
) -> None:
    broken, other = world.submit(), world.submit()
    records = world.records()
    world.spoil(broken)
    assert bury(world, records) == []
    assert world.status(other) is Status.FAILED
    told = {name: said["job_id"] for name, said in world.tell.problems}
    assert told["dead_letter_undecided"] == broken.job_id
