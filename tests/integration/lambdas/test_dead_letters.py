"""Dead letters: runs whose message came back too often end, and nothing fails in silence."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.domain.errors import Unavailable
from punctual.domain.run import Reason, RunStatus
from punctual.lambdas.dead_letters.handler import SPARE, DeadLetterHandler
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_faults import refused
from tests.support.builders import after
from tests.support.deployed.executors import Executors, executors

TAKES = 240.0


class Behind:
    """The dead-letter queue of a lane, and whoever empties it."""

    def __init__(self, world: Executors, name: str = "quick-dead.fifo") -> None:
        self._world = world
        self._sqs = world.aws.clients.sqs
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        self.url: str = self._sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
        self._received: list[str] = []
        self._sqs.meta.events.register("after-call.sqs.ReceiveMessage", self._note)

    def _note(self, parsed: Mapping[str, Any], **_: Any) -> None:
        self._received += [one["ReceiptHandle"] for one in parsed.get("Messages", [])]

    def put(self, *bodies: str) -> None:
        for number, body in enumerate(bodies):
            self._sqs.send_message(
                QueueUrl=self.url, MessageBody=body, MessageGroupId=f"{self.left}-{number}"
            )

    def all_die(self) -> None:
        """What stands in the lanes came back too often."""
        self.put(*(record["body"] for record in self._world.records()))

    def bury(self, left: float = TAKES, urls: tuple[str, ...] = ()) -> None:
        clock = self._world.clock
        until = clock.monotonic() + left
        burying = DeadLetterHandler(self._world.new_runtime(), urls or (self.url,))
        burying.bury(lambda: until - clock.monotonic())

    @property
    def left(self) -> int:
        """Seen and hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(number) for number in found["Attributes"].values())

    def come_back(self) -> None:
        """The time for which the queue hides them is over."""
        self._sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=self._received[-1], VisibilityTimeout=0
        )


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as made:
        yield made


@pytest.fixture
def behind(world: Executors) -> Behind:
    return Behind(world)


def test_a_dead_letter_ends_its_run_as_failed_with_the_reason(
    world: Executors, behind: Behind
) -> None:
    key = world.submit()
    behind.all_die()
    behind.bury()
    run = world.run(key).run
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.POISON)
    assert world.told.count(Metric.DEAD_LETTERS) == 1
    ((name, said),) = world.told.problems
    assert (name, said["run_id"], said["status"]) == ("run_poisoned", run.run_id, "FAILED")
    assert behind.left == 0


def test_all_that_is_there_goes_in_one_round_however_many_queues(
    world: Executors, behind: Behind
) -> None:
    keys = [world.submit() for _ in range(25)]
    behind.all_die()
    long = Behind(world, "long-dead.fifo")
    long.put("no message")
    behind.bury(urls=(behind.url, long.url))
    assert (behind.left, long.left) == (0, 0)
    assert {world.status(key) for key in keys} == {RunStatus.FAILED}
    assert world.told.count(Metric.DEAD_LETTERS) == 26


def test_a_round_with_nothing_to_do_asks_each_queue_once(world: Executors, behind: Behind) -> None:
    asked = world.aws.calls["ReceiveMessage"]
    behind.bury(urls=(behind.url, behind.url))
    assert world.aws.calls["ReceiveMessage"] - asked == 2
    assert world.aws.calls["DeleteMessageBatch"] == 0


def test_who_has_little_time_left_leaves_the_rest_to_the_next_round(
    world: Executors, behind: Behind
) -> None:
    for _ in range(12):
        world.submit()
    behind.all_die()

    def slow(**_: Any) -> None:
        world.clock.advance(timedelta(seconds=TAKES - SPARE))

    events = world.aws.clients.sqs.meta.events
    events.register("after-call.sqs.ReceiveMessage", slow)
    behind.bury()
    events.unregister("after-call.sqs.ReceiveMessage", slow)
    assert behind.left == 2
    behind.bury()
    assert behind.left == 0


def test_a_dead_letter_lets_the_next_in_line_go_on(world: Executors, behind: Behind) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    first = world.jobs.run_now(*key)
    second = world.jobs.run_now(*key)
    behind.all_die()
    behind.bury()
    assert world.search.run(*key, first.run.run_id).run.status is RunStatus.FAILED
    assert world.search.run(*key, second.run.run_id).run.status is RunStatus.QUEUED


def test_a_run_that_is_being_worked_on_is_left_alone(world: Executors, behind: Behind) -> None:
    key = world.submit(payload={"lasts": 10})
    (record,) = world.records()
    behind.put(record["body"])
    world.hands.at(after(5), behind.bury)
    world.invoke([record])
    assert behind.left == 0
    assert world.status(key) is RunStatus.SUCCESS
    assert [name for name, _ in world.told.lines] == ["dead_letter_stale", "run_ended"]


def test_a_letter_from_before_the_last_claim_says_nothing_of_the_next(
    world: Executors, behind: Behind
) -> None:
    """The run was claimed since, lost, and sent anew: it is that message which counts."""
    key = world.submit()
    (record,) = world.records()
    behind.put(record["body"])
    runtime = world.new_runtime()
    message = parse_message(record["body"])
    (one,) = runtime.executor.claim([message]).granted
    runtime.executor.release(one.key, one.run.run_id, one.run.token, begun=True)
    behind.bury()
    assert behind.left == 0
    assert world.status(key) is RunStatus.QUEUED
    assert world.told.problems == []


def test_what_cannot_be_read_is_told_in_full_and_does_not_come_again(
    world: Executors, behind: Behind
) -> None:
    key = world.submit()
    garbage = '{"f":2,"t":"acme"}'
    behind.put(garbage)
    behind.all_die()
    behind.bury()
    name, said = world.told.problems[0]
    assert (name, said["body"]) == ("dead_letter_unreadable", garbage)
    assert said["message_id"]
    assert world.told.count(Metric.DEAD_LETTERS) == 2
    assert world.status(key) is RunStatus.FAILED
    assert behind.left == 0


def test_a_letter_that_could_not_be_dealt_with_comes_again(
    world: Executors, behind: Behind
) -> None:
    key = world.submit()
    behind.all_die()
    with refused(world.aws.clients.dynamodb, "UpdateItem", 99, "ThrottlingException"):
        behind.bury()
    assert world.status(key) is RunStatus.QUEUED
    assert world.told.problems[0][0] == "dead_letters_kept"
    assert behind.left == 1
    behind.bury()
    assert behind.left == 1, "it is hidden for a while"
    behind.come_back()
    behind.bury()
    assert world.status(key) is RunStatus.FAILED
    assert behind.left == 0


def test_a_queue_that_does_not_answer_fails_the_round_and_keeps_no_other(
    world: Executors, behind: Behind
) -> None:
    key = world.submit()
    behind.all_die()
    with pytest.raises(Unavailable, match="while receiving dead letters"):
        behind.bury(urls=(behind.url.replace("quick", "gone"), behind.url))
    assert behind.left == 0
    assert world.status(key) is RunStatus.FAILED


def test_a_letter_whose_deletion_fails_is_old_when_it_comes_again(
    world: Executors, behind: Behind
) -> None:
    key = world.submit()
    behind.all_die()
    sqs = world.aws.clients.sqs
    with (
        refused(sqs, "DeleteMessageBatch", 9, "ServiceUnavailable", 503),
        pytest.raises(Unavailable, match="while deleting dead letters"),
    ):
        behind.bury()
    assert world.status(key) is RunStatus.FAILED
    behind.come_back()
    behind.bury()
    assert behind.left == 0
    assert [name for name, _ in world.told.lines] == ["dead_letter_stale"]


def test_a_letter_of_a_job_that_is_gone_is_done_with(world: Executors, behind: Behind) -> None:
    world.submit()
    behind.all_die()
    for row in world.aws.rows("jobs"):
        key = {name: row[name] for name in ("pk", "sk")}
        world.aws.clients.dynamodb.delete_item(TableName="jobs", Key=key)
    behind.bury()
    assert behind.left == 0
    assert world.told.lines[0][1]["verdict"] == "GONE"


def test_a_letter_of_a_head_that_nobody_can_read_is_told_and_keeps_no_other(
    world: Executors, behind: Behind
) -> None:
    broken, other = world.submit(), world.submit()
    behind.all_die()
    world.spoil(broken)
    behind.bury()
    assert behind.left == 0
    assert world.status(other) is RunStatus.FAILED
    told = {name: said["job_id"] for name, said in world.told.problems}
    assert told["dead_letter_undecided"] == broken.job_id


def test_a_letter_of_a_later_versions_head_goes_back_into_its_lane(
    world: Executors, behind: Behind
) -> None:
    theirs, other = world.submit(), world.submit()
    records = world.records()
    world.acknowledge(records)
    messages = [parse_message(record["body"]) for record in records]
    # The queue, whose clock is the real one, would know the ids of these for five minutes.
    behind.put(*(to_body(one._replace(version=one.version + 1)) for one in messages))
    world.outdate(theirs)
    behind.bury()
    assert behind.left == 0
    told = {name: said["job_id"] for name, said in world.told.problems}
    assert told["dead_letter_of_later_version"] == theirs.job_id
    world.outdate(theirs, keys.LAYOUT)
    assert (world.status(theirs), world.status(other)) == (RunStatus.QUEUED, RunStatus.FAILED)
    assert world.invoke(world.records()) == []
    assert world.status(theirs) is RunStatus.SUCCESS
