"""The emulated queues and streams behave as AWS documents."""

from datetime import timedelta
from typing import Any

from bench.cost.meter import WrittenRow
from punctual.aws.dynamodb.keys import RowKey
from tests.support.builders import NOON, ManualClock, after
from tests.support.deployed.deployed import Source
from tests.support.deployed.sqs import Queue, Sqs
from tests.support.deployed.stream import Stream, passes

SOON = timedelta(seconds=30)


def fifo(max_receives: int = 0, dead: str = "") -> Queue:
    return Queue("q.fifo", "u/q.fifo", "arn:q", SOON, timedelta(days=4), dead, max_receives)


def standard(name: str = "s") -> Queue:
    return Queue(name, f"u/{name}", f"arn:{name}", SOON, timedelta(days=4))


def entry(body: str, group: str = "g", dedup: str = "") -> dict[str, Any]:
    return {"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": dedup or body}


def bodies(messages: list[Any]) -> list[str]:
    return [message.body for message in messages]


def test_fifo_deduplicates_for_five_minutes_after_delete() -> None:
    clock, queue = ManualClock(NOON), fifo()
    sqs = Sqs(clock, [queue])
    sqs.send(queue, entry("a"))
    sqs.delete(queue, sqs.receive(queue, 10))
    sqs.send(queue, entry("a"))
    assert sqs.receive(queue, 10) == []
    sqs.send(queue, entry("a", group="other"))
    assert bodies(sqs.receive(queue, 10)) == ["a"]
    clock.set(after(300))
    sqs.send(queue, entry("a"))
    assert len(sqs.receive(queue, 10)) == 2


def test_fifo_group_is_delivered_in_order_to_one_receiver() -> None:
    clock, queue = ManualClock(NOON), fifo()
    sqs = Sqs(clock, [queue])
    for body, group in (("a", "g"), ("b", "g"), ("c", "h")):
        sqs.send(queue, entry(body, group))
    assert bodies(sqs.receive(queue, 1)) == ["a"]
    assert bodies(sqs.receive(queue, 10)) == ["c"]
    clock.set(after(30))
    assert bodies(sqs.receive(queue, 10)) == ["a", "b", "c"]


def test_message_received_too_often_is_dead_lettered() -> None:
    clock, dead = ManualClock(NOON), standard("dead")
    queue = fifo(max_receives=2, dead="arn:dead")
    sqs = Sqs(clock, [queue, dead])
    sqs.send(queue, entry("a"))
    for number in range(2):
        clock.set(after(30 * number))
        assert bodies(sqs.receive(queue, 10)) == ["a"]
    clock.set(after(60))
    assert sqs.receive(queue, 10) == []
    assert bodies(sqs.receive(dead, 10)) == ["a"]


def test_delayed_message_is_delivered_at_its_time() -> None:
    clock, queue = ManualClock(NOON), standard()
    sqs = Sqs(clock, [queue])
    sqs.send(queue, {"MessageBody": "a", "DelaySeconds": 20})
    assert sqs.next_at(NOON) == after(20)
    clock.set(after(19))
    assert sqs.receive(queue, 10) == []
    clock.set(after(20))
    assert bodies(sqs.receive(queue, 10)) == ["a"]


def a_stream(records: int) -> Stream:
    stream = Stream("arn:aws:dynamodb:us-east-1:1:table/t/stream/x")
    for number in range(records):
        row = {"n": {"N": str(number)}, "b": {"B": b"\x00"}}
        stream.append(WrittenRow("t", RowKey("p", str(number)), None, row), NOON)
    return stream


def test_failed_stream_batch_is_bisected_to_failing_record() -> None:
    source = Source("f", "arn", 8, True, bisect=True, retries=2, age=-1, failed_to="", filters=[])
    (reader,) = a_stream(4).readers
    sizes, given_up = [], []
    while reader.records:
        batch = reader.batch(source)
        sizes.append(len(batch))
        if any(record["eventID"] == "event-3" for record in batch):
            given_up += reader.failed(source, len(batch), 0)
        else:
            reader.done(len(batch))
    assert [record["eventID"] for record in given_up] == ["event-3"]
    assert sizes == [4, 2, 2, 1, 1, 1, 1]


def test_event_filter_passes_matching_records() -> None:
    (record,) = a_stream(1).records
    assert record["dynamodb"]["NewImage"]["b"] == {"B": "AA=="}
    assert passes(record, {"eventName": ["INSERT", "MODIFY"]})
    assert not passes(record, {"eventName": ["REMOVE"]})
    image = {"NewImage": {"n": {"N": [{"exists": True}]}}}
    assert passes(record, {"dynamodb": image})
    assert not passes(record, {"dynamodb": {"NewImage": {"m": {"S": [{"exists": True}]}}}})
    assert passes(record, {"dynamodb": {"Keys": {"pk": {"S": [{"prefix": "p"}]}}}})
