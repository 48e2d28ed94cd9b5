"""Dead letters: a run ends after too many receives of its message, and is logged."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.domain.errors import Unavailable
from punctual.domain.run import Reason, RunStatus
from punctual.lambdas.dead_letters.handler import DEAD_LETTER_RESERVE_SECONDS
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_faults import refused
from tests.support.builders import after
from tests.support.deployed.drivers.executors import Executors, executors
from tests.support.deployed.sqs import Queue

TAKES = 240.0


class DeadLetterQueue:
    """The dead-letter queue of a lane, and the function that empties it."""

    def __init__(self, world: Executors, name: str = "quick-normal-dead.fifo") -> None:
        self._world = world
        self.queue = world.world.queue(name)

    def put(self, *bodies: str) -> None:
        for body in bodies:
            mark = self._world.world.new_id()
            fifo = {"MessageGroupId": mark, "MessageDeduplicationId": mark}
            self._world.world.sqs.send(self.queue, {"MessageBody": body, **fifo})

    def dead_letter_all(self) -> None:
        """Move the messages of the lanes to this queue, as after too many receives."""
        records = self._world.records()
        self._world.acknowledge(records)
        self.put(*(record["body"] for record in records))

    def handle(self, seconds_left: float = TAKES, queues: tuple[Queue, ...] = ()) -> None:
        self._world.handle_dead_letters(seconds_left, *(queues or (self.queue,)))

    @property
    def message_count(self) -> int:
        """Return the number of messages, visible or hidden."""
        return len(self.queue.messages)

    def make_visible(self) -> None:
        """Make the hidden messages of the queue visible."""
        for message in self.queue.messages:
            message.visible_at = self._world.clock()


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as world:
        yield world


@pytest.fixture
def dead_queue(world: Executors) -> DeadLetterQueue:
    return DeadLetterQueue(world)


def test_dead_letter_ends_its_run_as_failed_with_reason(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit()
    dead_queue.dead_letter_all()
    dead_queue.handle()
    run = world.run(key).run
    assert (run.status, run.reason) == (RunStatus.FAILED, Reason.POISON)
    assert world.telemetry.count(Metric.DEAD_LETTERS) == 1
    ((name, fields),) = world.telemetry.problems
    assert (name, fields["run_id"], fields["status"]) == ("run_poisoned", run.run_id, "FAILED")
    assert dead_queue.message_count == 0


def test_one_round_handles_all_dead_letters_of_all_queues(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    keys = [world.submit() for _ in range(25)]
    dead_queue.dead_letter_all()
    long = DeadLetterQueue(world, "long-dead.fifo")
    long.put("no message")
    dead_queue.handle(queues=(dead_queue.queue, long.queue))
    assert (dead_queue.message_count, long.message_count) == (0, 0)
    assert {world.status(key) for key in keys} == {RunStatus.FAILED}
    assert world.telemetry.count(Metric.DEAD_LETTERS) == 26


def test_empty_round_receives_once_from_each_queue(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    asked = world.aws.calls["ReceiveMessage"]
    dead_queue.handle(queues=(dead_queue.queue, dead_queue.queue))
    assert world.aws.calls["ReceiveMessage"] - asked == 2
    assert world.aws.calls["DeleteMessageBatch"] == 0


def test_round_with_little_time_left_leaves_rest_to_next_round(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    for _ in range(12):
        world.submit()
    dead_queue.dead_letter_all()

    def slow(**_: Any) -> None:
        world.clock.advance(timedelta(seconds=TAKES - DEAD_LETTER_RESERVE_SECONDS))

    events = world.aws.clients.sqs.meta.events
    events.register("after-call.sqs.ReceiveMessage", slow)
    dead_queue.handle()
    events.unregister("after-call.sqs.ReceiveMessage", slow)
    assert dead_queue.message_count == 2
    dead_queue.handle()
    assert dead_queue.message_count == 0


def test_dead_letter_admits_next_waiting_run(world: Executors, dead_queue: DeadLetterQueue) -> None:
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    first = world.jobs.run_now(*key)
    second = world.jobs.run_now(*key)
    dead_queue.dead_letter_all()
    dead_queue.handle()
    assert world.search.run(*key, first.run.run_id).run.status is RunStatus.FAILED
    assert world.search.run(*key, second.run.run_id).run.status is RunStatus.QUEUED


def test_dead_letter_of_claimed_run_changes_nothing(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit(payload={"lasts": 10})
    (record,) = world.records()
    dead_queue.put(record["body"])
    world.task_runner.at(after(5), dead_queue.handle)
    world.invoke([record])
    assert dead_queue.message_count == 0
    assert world.status(key) is RunStatus.SUCCESS
    assert [name for name, _ in world.telemetry.infos] == ["dead_letter_stale", "run_ended"]


def test_dead_letter_older_than_last_claim_is_stale(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    """The run was claimed, lost and sent again since. Only its new message counts."""
    key = world.submit()
    (record,) = world.records()
    dead_queue.put(record["body"])
    runtime = world.new_runtime()
    message = parse_message(record["body"])
    (claim,) = runtime.executor.claim([message]).claimed
    runtime.executor.return_claim(claim.key, claim.run.run_id, claim.run.token, work_begun=True)
    dead_queue.handle()
    assert dead_queue.message_count == 0
    assert world.status(key) is RunStatus.QUEUED
    assert world.telemetry.problems == []


def test_unreadable_dead_letter_is_logged_in_full_and_deleted(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit()
    garbage = '{"f":2,"t":"acme"}'
    dead_queue.put(garbage)
    dead_queue.dead_letter_all()
    dead_queue.handle()
    name, fields = world.telemetry.problems[0]
    assert (name, fields["body"]) == ("dead_letter_unreadable", garbage)
    assert fields["message_id"]
    assert world.telemetry.count(Metric.DEAD_LETTERS) == 2
    assert world.status(key) is RunStatus.FAILED
    assert dead_queue.message_count == 0


def test_dead_letter_is_kept_while_store_refuses_writes(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit()
    dead_queue.dead_letter_all()
    with refused(world.aws.clients.dynamodb, "UpdateItem", 99, "ThrottlingException"):
        dead_queue.handle()
    assert world.status(key) is RunStatus.QUEUED
    assert world.telemetry.problems[0][0] == "dead_letters_kept"
    assert dead_queue.message_count == 1
    dead_queue.handle()
    assert dead_queue.message_count == 1, "the message is hidden for a while"
    dead_queue.make_visible()
    dead_queue.handle()
    assert world.status(key) is RunStatus.FAILED
    assert dead_queue.message_count == 0


def test_unavailable_queue_fails_round_after_other_queues(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit()
    dead_queue.dead_letter_all()
    gone = world.world.queue("quick-high-dead.fifo")
    del world.world.sqs.by_url[gone.url]
    with pytest.raises(Unavailable, match="while receiving dead letters"):
        dead_queue.handle(queues=(gone, dead_queue.queue))
    assert dead_queue.message_count == 0
    assert world.status(key) is RunStatus.FAILED


def test_dead_letter_with_failed_deletion_is_stale_next_time(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    key = world.submit()
    dead_queue.dead_letter_all()
    sqs = world.aws.clients.sqs
    with (
        refused(sqs, "DeleteMessageBatch", 9, "ServiceUnavailable", 503),
        pytest.raises(Unavailable, match="while deleting dead letters"),
    ):
        dead_queue.handle()
    assert world.status(key) is RunStatus.FAILED
    dead_queue.make_visible()
    dead_queue.handle()
    assert dead_queue.message_count == 0
    assert [name for name, _ in world.telemetry.infos] == ["dead_letter_stale"]


def test_dead_letter_of_deleted_job_is_deleted(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    world.submit()
    dead_queue.dead_letter_all()
    for row in world.aws.rows("jobs"):
        key = {name: row[name] for name in ("pk", "sk")}
        world.aws.clients.dynamodb.delete_item(TableName=world.aws.settings.jobs_table, Key=key)
    dead_queue.handle()
    assert dead_queue.message_count == 0
    assert world.telemetry.infos[0][1]["verdict"] == "GONE"


def test_dead_letter_with_unreadable_job_state_is_logged(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    broken, other = world.submit(), world.submit()
    dead_queue.dead_letter_all()
    world.make_unreadable(broken)
    dead_queue.handle()
    assert dead_queue.message_count == 0
    assert world.status(other) is RunStatus.FAILED
    told = {name: fields["job_id"] for name, fields in world.telemetry.problems}
    assert told["dead_letter_undecided"] == broken.job_id


def test_dead_letter_with_newer_job_state_format_is_sent_again(
    world: Executors, dead_queue: DeadLetterQueue
) -> None:
    theirs, other = world.submit(), world.submit()
    records = world.records()
    world.acknowledge(records)
    messages = [parse_message(record["body"]) for record in records]
    # The queue knows the ids of the messages that were sent for five minutes.
    dead_queue.put(
        *(to_body(message._replace(version=message.version + 1)) for message in messages)
    )
    world.set_layout(theirs)
    dead_queue.handle()
    assert dead_queue.message_count == 0
    told = {name: fields["job_id"] for name, fields in world.telemetry.problems}
    assert told["dead_letter_of_later_version"] == theirs.job_id
    world.set_layout(theirs, keys.ROW_LAYOUT)
    assert (world.status(theirs), world.status(other)) == (RunStatus.QUEUED, RunStatus.FAILED)
    assert world.invoke(world.records()) == []
    assert world.status(theirs) is RunStatus.SUCCESS
