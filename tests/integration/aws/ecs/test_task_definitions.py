"""Task definitions and container rows on the control table, with the stand-in for ECS."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.ecs.containers import ContainerRows
from punctual.aws.ecs.task_definitions import (
    DEFINITION_RETENTION,
    REGISTRATION_LOCK,
    Registering,
    StageDefinition,
    TaskDefinitions,
    definition_parameters,
)
from punctual.aws.thread_pool import ThreadPool
from punctual.tasks.container.definition import SecretReference, TaskContent
from punctual.tasks.container.next_step import Container
from punctual.tasks.container.sizes import FargateSize
from punctual.tasks.contract import BadTask
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import ManualClock
from tests.support.builders_jobs import NOON
from tests.support.containers.ecs import Ecs, LostAnswer, Refusal

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
STAGE = StageDefinition("punctual-dev", "role:task", "role:pull", "/logs", "eu-west-1", "X86_64")
CONTENT = TaskContent("alpine:3.20", FargateSize(0.5, 1_024))
CONCURRENT = Refusal(
    "ClientException",
    "Too many concurrent attempts to create a new revision of the specified family.",
)


class World:
    """Several executors over one control table and one stand-in for ECS."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        self.aws = aws
        self.clock = clock
        self.ecs = Ecs(clock)
        self.ecs.answer(aws.clients.ecs)
        self.dynamo = DynamoClient(lambda: aws.clients.dynamodb, ThreadPool(1), aws.patience)
        self.rows = ContainerRows(self.dynamo, aws.settings.control_table)

    def executor(self) -> TaskDefinitions:
        return TaskDefinitions(
            lambda: self.aws.clients.ecs,
            self.dynamo,
            self.aws.settings.control_table,
            STAGE,
            self.clock,
            self.aws.patience,
        )


@pytest.fixture
def world() -> Iterator[World]:
    clock = ManualClock(NOON)
    with moto(clock) as aws:
        yield World(aws, clock)


def test_content_is_registered_once_for_all_executors(world: World) -> None:
    arns = {world.executor().find_or_register(CONTENT) for _ in range(3)}
    assert arns == set(world.ecs.definitions)
    assert world.ecs.count("RegisterTaskDefinition") == 1


def test_other_content_has_a_definition_of_its_own(world: World) -> None:
    executor = world.executor()
    contents = [
        CONTENT,
        CONTENT._replace(image="alpine:3.21"),
        CONTENT._replace(size=FargateSize(1, 2_048)),
        CONTENT._replace(entry_point=("python", "-m", "punctual.runner")),
        CONTENT._replace(secrets=(SecretReference("TOKEN", "arn:secret"),)),
    ]
    assert len({executor.find_or_register(content) for content in contents}) == 5
    families = {definition["family"] for definition in world.ecs.definitions.values()}
    assert len(families) == 5


def test_warm_executor_asks_neither_table_nor_ecs(world: World) -> None:
    executor = world.executor()
    executor.find_or_register(CONTENT)
    assert world.aws.spend(lambda: executor.find_or_register(CONTENT)) == {}


def test_second_executor_waits_while_the_first_registers(world: World) -> None:
    world.ecs.plant("RegisterTaskDefinition", *[LostAnswer()] * 20)
    assert world.executor().find_or_register(CONTENT) == Registering()
    world.ecs.faults.clear()
    assert world.executor().find_or_register(CONTENT) == Registering()
    world.clock.advance(REGISTRATION_LOCK + SECOND)
    assert isinstance(world.executor().find_or_register(CONTENT), str)


def test_too_many_concurrent_revisions_are_waited_out(world: World) -> None:
    world.ecs.plant("RegisterTaskDefinition", CONCURRENT, CONCURRENT)
    arn = world.executor().find_or_register(CONTENT)
    assert [arn] == list(world.ecs.definitions)
    assert world.ecs.count("RegisterTaskDefinition") == 3


def test_definition_that_ecs_refuses_fails_the_attempt_without_a_retry(world: World) -> None:
    world.ecs.plant("RegisterTaskDefinition", Refusal("ClientException", "Invalid image."))
    with pytest.raises(BadTask, match="ECS refused the task definition: Invalid image"):
        world.executor().find_or_register(CONTENT)


def test_definition_without_use_is_deregistered_after_30_days(world: World) -> None:
    first = world.executor().find_or_register(CONTENT)
    world.clock.advance(20 * DAY)
    assert world.executor().find_or_register(CONTENT) == first  # notes the use
    world.clock.advance(DEFINITION_RETENTION - DAY)
    assert world.executor().deregister_unused(world.clock()) == 0
    world.clock.advance(DAY)
    assert world.executor().deregister_unused(world.clock()) == 1
    assert world.ecs.definitions == {}
    assert world.executor().find_or_register(CONTENT) != first


def test_definition_that_is_gone_is_registered_again(world: World) -> None:
    executor = world.executor()
    first = executor.find_or_register(CONTENT)
    world.ecs.definitions.clear()
    executor.forget(CONTENT)
    assert executor.find_or_register(CONTENT) != first


def test_definition_holds_roles_logs_and_secrets_by_reference() -> None:
    content = CONTENT._replace(
        entry_point=("run",), secrets=(SecretReference("TOKEN", "arn:secret"),)
    )
    parameters: dict[str, Any] = definition_parameters(content, "abc", STAGE)
    (container,) = parameters["containerDefinitions"]
    assert (parameters["cpu"], parameters["memory"]) == ("512", "1024")
    assert parameters["taskRoleArn"] == "role:task"
    assert parameters["executionRoleArn"] == "role:pull"
    assert container["secrets"] == [{"name": "TOKEN", "valueFrom": "arn:secret"}]
    assert container["entryPoint"] == ["run"]
    assert container["logConfiguration"]["options"]["mode"] == "non-blocking"
    assert container["stopTimeout"] == 30


def a_container(start_id: str = "run-1-7", **fields: Any) -> Container:
    return Container(
        start_id, "acme", "job", "run", 1, 7, FargateSize(0.25, 512), 600, NOON
    )._replace(**fields)


def test_row_of_a_container_keeps_all_of_it(world: World) -> None:
    world.rows.put(a_container())
    assert world.rows.load_all() == [a_container()]
    world.rows.set_arn("run-1-7", "arn:task")
    world.rows.set_running("run-1-7", NOON + SECOND)
    world.rows.set_stop_reason("run-1-7", "CANCEL")
    expected = a_container(arn="arn:task", running_at=NOON + SECOND, stop_reason="CANCEL")
    assert world.rows.load(["run-1-7", "run-2-9"]) == {"run-1-7": expected}
    discarding = expected._replace(keeps_log=False)
    world.rows.put(discarding)
    assert world.rows.load_all() == [discarding]


def test_late_news_of_a_container_does_not_bring_its_row_back(world: World) -> None:
    world.rows.put(a_container())
    world.rows.delete(["run-1-7"])
    world.rows.set_arn("run-1-7", "arn:task")
    assert world.rows.load_all() == []
