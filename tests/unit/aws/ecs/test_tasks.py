"""Calls of ECS against the stand-in: what starts once, what is repeated, what is refused."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from punctual.aws.ecs.log_tail import MAX_TAIL_BYTES, NO_TAIL, LogTails
from punctual.aws.ecs.tasks import (
    MAX_STOPPED_PAGES,
    DefinitionGone,
    EcsTasks,
    Network,
    NoAnswer,
    NotStarted,
    Rejected,
    Started,
    TaskStart,
)
from punctual.aws.retries import RetryPolicy
from punctual.domain.errors import Unavailable
from punctual.tasks.container.request import overrides_of
from tests.support.builders import NOON, ManualClock
from tests.support.containers.ecs import Ecs, Failures, LostAnswer, Refusal

NETWORK = Network(("subnet-a", "subnet-b"), ("sg-a",), has_public_address=True)
RATE_EXCEEDED = Refusal(
    "InvalidParameterException", "Rate exceeded (Service: AmazonECS; Error Code: Throttling)"
)
TIMED_OUT = LostAnswer()


class World:
    """A stand-in for ECS, and the adapter over it."""

    def __init__(self) -> None:
        self.ecs = Ecs(ManualClock(NOON))
        self.waits: list[float] = []
        self.tasks = EcsTasks(
            lambda: self.client("ecs"), "punctual-dev", NETWORK, RetryPolicy(self.waits.append, "")
        )
        self._clients: dict[str, Any] = {}
        self.ecs.definitions["definition:1"] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            session: Any = boto3.Session(
                region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
            )
            self._clients[service] = session.client(service)
            self.ecs.answer(self._clients[service])
        return self._clients[service]


@pytest.fixture
def world() -> World:
    return World()


def a_start(start_id: str = "run-1-7", **fields: Any) -> TaskStart:
    overrides = overrides_of(("echo", "hi"), {"A": "1"})
    return TaskStart(start_id, "definition:1", overrides)._replace(**fields)


def test_start_names_run_and_attempt_and_all_subnets(world: World) -> None:
    result = world.tasks.start(a_start())
    task = world.ecs.only_task()
    assert result == Started(task.arn)
    assert (task.params["clientToken"], task.params["startedBy"]) == ("run-1-7", "run-1-7")
    network = task.params["networkConfiguration"]["awsvpcConfiguration"]
    assert network["subnets"] == ["subnet-a", "subnet-b"]
    assert network["assignPublicIp"] == "ENABLED"
    assert (task.command, task.environment) == (["echo", "hi"], {"A": "1"})


def test_start_without_command_keeps_that_of_the_image(world: World) -> None:
    world.tasks.start(a_start(overrides=overrides_of((), {"A": "1"})))
    (override,) = world.ecs.only_task().params["overrides"]["containerOverrides"]
    assert "command" not in override


def test_throttle_that_looks_like_an_invalid_parameter_is_retried(world: World) -> None:
    world.ecs.plant("RunTask", RATE_EXCEEDED, RATE_EXCEEDED)
    assert isinstance(world.tasks.start(a_start()), Started)
    assert (world.ecs.count("RunTask"), len(world.waits)) == (3, 2)


def test_throttle_without_end_starts_nothing(world: World) -> None:
    world.ecs.plant("RunTask", *[RATE_EXCEEDED] * 20)
    assert world.tasks.start(a_start()) == NotStarted("ECS throttles starts of tasks")
    assert world.ecs.tasks == {}


@pytest.mark.parametrize(
    "fault",
    [
        Failures("RESOURCE:MEMORY"),
        Failures("Capacity is unavailable at this time. Please try again later"),
        Refusal("ClientException", "You've reached the limit on the number of vCPUs you can run"),
    ],
)
def test_answer_without_task_is_not_a_start(world: World, fault: Failures | Refusal) -> None:
    world.ecs.plant("RunTask", fault)
    result = world.tasks.start(a_start())
    assert isinstance(result, NotStarted)
    assert world.ecs.tasks == {}


def test_lost_answer_is_asked_again_with_the_same_token(world: World) -> None:
    world.ecs.plant("RunTask", TIMED_OUT)
    result = world.tasks.start(a_start())
    assert result == Started(world.ecs.only_task().arn)
    assert world.ecs.count("RunTask") == 2


def test_start_that_never_answers_may_have_started(world: World) -> None:
    world.ecs.plant("RunTask", *[TIMED_OUT] * 20)
    assert world.tasks.start(a_start()) == NoAnswer()
    assert world.tasks.find("run-1-7") == world.ecs.only_task().arn
    assert world.tasks.find("run-2-9") == ""


def test_ended_task_of_a_token_is_found_among_others(world: World) -> None:
    for number in range(120):
        world.tasks.start(a_start(f"run-{number}-1"))
        world.ecs.exit(world.ecs.newest_task(), 0)
    assert world.tasks.find("run-119-1") == world.ecs.newest_task().arn
    assert world.tasks.find("run-1-9") == ""


def test_one_of_too_many_ended_tasks_is_not_called_absent(world: World) -> None:
    for number in range(MAX_STOPPED_PAGES * 100 + 1):
        world.tasks.start(a_start(f"run-{number}-1"))
        world.ecs.exit(world.ecs.newest_task(), 0)
    with pytest.raises(Unavailable, match="Too many"):
        world.tasks.find("run-1-9")


def test_another_attempt_never_gets_the_dead_task_of_the_first(world: World) -> None:
    first = world.tasks.start(a_start("run-1-7"))
    world.ecs.exit(world.ecs.only_task(), 1)
    assert world.tasks.start(a_start("run-1-7")) == first
    second = world.tasks.start(a_start("run-2-9"))
    assert isinstance(second, Started)
    assert second != first
    assert len(world.ecs.tasks) == 2


def test_token_with_other_parameters_finds_its_task(world: World) -> None:
    def answer_conflict(**_: Any) -> Any:
        error = {"Code": "ConflictException", "Message": "The token is in use."}
        metadata = {"HTTPStatusCode": 400}
        answer = {"Error": error, "resourceIds": ["arn:known"], "ResponseMetadata": metadata}
        return type("Http", (), {"status_code": 400})(), answer

    world.client("ecs").meta.events.register_first("before-call.ecs.RunTask", answer_conflict)
    assert world.tasks.start(a_start()) == Started("arn:known")


def test_deregistered_definition_is_told_apart(world: World) -> None:
    assert world.tasks.start(a_start(definition_arn="definition:0")) == DefinitionGone()


def test_wrong_parameter_is_rejected_in_the_words_of_ecs(world: World) -> None:
    world.ecs.plant("RunTask", Refusal("InvalidParameterException", "No such subnet."))
    assert world.tasks.start(a_start()) == Rejected(
        "ECS refused the task with InvalidParameterException: No such subnet."
    )
    assert world.ecs.count("RunTask") == 1


def test_tasks_are_described_a_hundred_at_a_time(world: World) -> None:
    started = [world.tasks.start(a_start(f"run-{number}-1")) for number in range(120)]
    arns = [result.arn for result in started if isinstance(result, Started)]
    reports = world.tasks.describe([*arns, "arn:unknown"])
    assert set(reports) == set(arns)
    assert world.ecs.count("DescribeTasks") == 2


def test_throttled_describe_is_unavailable_and_not_an_empty_answer(world: World) -> None:
    world.ecs.plant("DescribeTasks", *[Refusal("ThrottlingException", "Rate exceeded")] * 20)
    with pytest.raises(Unavailable):
        world.tasks.describe(["arn:task"])


def test_stop_names_its_reason_and_forgives_an_ended_task(world: World) -> None:
    world.tasks.start(a_start())
    task = world.ecs.only_task()
    world.tasks.stop(task.arn, "Punctual: CANCEL")
    world.tasks.stop("arn:unknown", "Punctual: CANCEL")
    assert task.stop_requests == ["Punctual: CANCEL"]


@pytest.mark.parametrize(
    "fault",
    [RATE_EXCEEDED, Refusal("AccessDeniedException", "not authorized")],
    ids=["throttled", "denied"],
)
def test_stop_that_fails_is_unavailable(world: World, fault: Refusal) -> None:
    world.ecs.plant("StopTask", *[fault] * 20)
    with pytest.raises(Unavailable):
        world.tasks.stop("arn:task", "Punctual: CANCEL")


def tails(world: World) -> LogTails:
    return LogTails(lambda: world.client("logs"), "/punctual/dev/containers")


def test_missing_log_stream_is_an_empty_log(world: World) -> None:
    assert tails(world).read("arn:aws:ecs:x:1:task/c/abc") == NO_TAIL


def test_log_tail_holds_the_last_lines(world: World) -> None:
    world.tasks.start(a_start())
    task = world.ecs.only_task()
    world.ecs.print(task, "one", "two")
    assert tails(world).read(task.arn) == (b"one\ntwo\n", False)


@pytest.mark.parametrize(
    "lines", [["x"] * 10_001, ["y" * 1_000] * 300], ids=["many lines", "many bytes"]
)
def test_long_log_is_cut_at_its_beginning(world: World, lines: list[str]) -> None:
    world.tasks.start(a_start())
    task = world.ecs.only_task()
    world.ecs.print(task, "first", *lines)
    data, is_cut = tails(world).read(task.arn)
    assert is_cut
    assert len(data) <= MAX_TAIL_BYTES
    assert b"first" not in data


def test_log_that_fails_otherwise_is_unavailable(world: World) -> None:
    world.ecs.plant("GetLogEvents", Refusal("AccessDeniedException", "not authorized"))
    read: Callable[[str], Any] = tails(world).read
    with pytest.raises(Unavailable):
        read("arn:aws:ecs:x:1:task/c/abc")
