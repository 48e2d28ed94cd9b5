"""Dead letters: runs whose message came back too often end, and nothing fails in silence."""

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
from tests.support.deployed.executors import Executors, executors
from tests.support.deployed.sqs import Queue

TAKES = 240.0


class Behind:
    """The dead-letter queue of a lane, and the function that empties it."""

    def __init__(self, world: Executors, name: str = "quick-normal-dead.fifo") -> None:
        self._world = world
        self.queue = world.world.queue(name)

    def put(self, *bodies: str) -> None:
        for body in bodies:
            mark = self._world.world.new_id()
            fifo = {"MessageGroupId": mark, "MessageDeduplicationId": mark}
            self._world.world.sqs.send(self.queue, {"MessageBody": body, **fifo})

    def all_die(self) -> None:
        """Move the messages of the lanes here, as after too many receives."""
        records = self._world.records()
        self._world.acknowledge(records)
        self.put(*(record["body"] for record in records))

    def bury(self, left: float = TAKES, queues: tuple[Queue, ...] = ()) -> None:
        self._world.bury(left, *(queues or (self.queue,)))

    @property
    def left(self) -> int:
        """Return the number of messages, visible or hidden."""
        return len(self.queue.letters)

    def come_back(self) -> None:
        """End the time for which the queue hides its messages."""
        for letter in self.queue.letters:
            letter.visible_at = self._world.clock()


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
    behind.bury(queues=(behind.queue, long.queue))
    assert (behind.left, long.left) == (0, 0)
    assert {world.status(key) for key in keys} == {RunStatus.FAILED}
    assert world.told.count(Metric.DEAD_LETTERS) == 26


def test_a_round_with_nothing_to_do_asks_each_queue_once(world: Executors, behind: Behind) -> None:
    asked = world.aws.calls["ReceiveMessage"]
    behind.bury(queues=(behind.queue, behind.queue))
    assert world.aws.calls["ReceiveMessage"] - asked == 2
    assert world.aws.calls["DeleteMessageBatch"] == 0


def test_who_has_little_time_left_leaves_the_rest_to_the_next_round(
    world: Executors, behind: Behind
) -> None:
    for _ in range(12):
        world.submit()
    behind.all_die()

    def slow(**_: Any) -> None:
        world.clock.advance(timedelta(seconds=TAKES - DEAD_LETTER_RESERVE_SECONDS))

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
    (one,) = runtime.executor.claim([message]).claimed
    runtime.executor.return_claim(one.key, one.run.run_id, one.run.token, work_begun=True)
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
    gone = world.world.queue("quick-high-dead.fifo")
    del world.world.sqs.by_url[gone.url]
    with pytest.raises(Unavailable, match="while receiving dead letters"):
        behind.bury(queues=(gone, behind.queue))
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
        world.aws.clients.dynamodb.delete_item(TableName=world.aws.settings.jobs_table, Key=key)
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
    # The queue knows the ids of the messages that were sent for five minutes.
    behind.put(*(to_body(one._replace(version=one.version + 1)) for one in messages))
    world.outdate(theirs)
    behind.bury()
    assert behind.left == 0
    told = {name: said["job_id"] for name, said in world.told.problems}
    assert told["dead_letter_of_later_version"] == theirs.job_id
    world.outdate(theirs, keys.ROW_LAYOUT)
    assert (world.status(theirs), world.status(other)) == (RunStatus.QUEUED, RunStatus.FAILED)
    assert world.invoke(world.records()) == []
    assert world.status(theirs) is RunStatus.SUCCESS
