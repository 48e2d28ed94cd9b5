"""Lambda's event sources: deliver, delete, retry, give up."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bench.cost.meter import Call, Meter, Unit
from tests.support.builders import ManualClock
from tests.support.deployed.actors import Actor, Actors
from tests.support.deployed.deployed import REGION, Deployed, Source
from tests.support.deployed.sqs import Queue, QueuedMessage, Sqs, record
from tests.support.deployed.stream import SHARD, Reader, Stream


class EventSources:
    """The part of a world that delivers messages, records and timed events."""

    clock: ManualClock
    deployed: Deployed
    meter: Meter
    actors: Actors
    sqs: Sqs
    streams: Mapping[str, Stream]
    throttled: set[str]  # functions that Lambda does not start

    def __init__(self) -> None:
        self._streamed = 0  # metered calls with writes in the streams

    def start(self, name: str, event: Any, done: Callable[[Actor], None]) -> Actor:
        raise NotImplementedError

    def pump(self) -> None:
        """Deliver everything that is ready now."""
        while self.actors.wake() + self._pump_queues() + self._pump_streams():
            pass

    def _pump_queues(self) -> int:
        moved = 0
        for queue in self.deployed.queues:
            source = self.deployed.fed_by(queue.arn)
            if source is None:
                continue
            messages = self.sqs.receive(queue, source.batch)
            if messages:
                moved += 1
                self.deliver(source, queue, messages)
        return moved

    def deliver(self, source: Source, queue: Queue, messages: Sequence[QueuedMessage]) -> None:
        """Deliver one batch to a function, and delete the messages that did not fail."""
        self._polled(source.function, queue, "ReceiveMessage")
        if source.function in self.throttled:
            return  # the messages become visible again later
        event = {"Records": [record(queue, message, REGION) for message in messages]}
        receipts = {message.id: message.receipt for message in messages}

        def done(actor: Actor) -> None:
            if actor.error is not None:
                return
            again = _failed(actor.answer) if source.partial else []
            assert set(again) <= receipts.keys(), "only a delivered message can fail"
            gone = [message for message in messages if message.id not in again]
            if gone:
                self._polled(source.function, queue, "DeleteMessageBatch")
                held = [message for message in gone if message.receipt == receipts[message.id]]
                self.sqs.delete(queue, held)

        self.start(source.function, event, done)

    def _polled(self, function: str, queue: Queue, operation: str) -> None:
        """Count a call of Lambda's poller.

        It uses the function's rights and the account's money.
        """
        unit = Unit.FIFO if queue.fifo else Unit.SQS
        params = {"QueueUrl": queue.url}
        units = {(unit, f"{queue.name}: {operation}"): 1.0}
        self.meter.add(Call(function, "sqs", operation, params, units, by_lambda=True))

    def _pump_streams(self) -> int:
        self._gather()
        return sum(
            self._hand_out(self.deployed.fed_by(arn), arn, reader)
            for arn, stream in self.streams.items()
            for reader in stream.readers
        )

    def _gather(self) -> None:
        """Append the writes since the last call to the streams."""
        tables = {table: arn for arn, table in self.deployed.streams.items()}
        for call in self.meter.calls[self._streamed :]:
            for write in call.writes:
                if write.table in tables:
                    self.streams[tables[write.table]].append(write, self.clock())
        self._streamed = len(self.meter.calls)

    def _stream_at(self) -> datetime | None:
        """Return the time of the next delivery from a stream."""
        sources = [(stream, self.deployed.fed_by(arn)) for arn, stream in self.streams.items()]
        moments = [
            reader.due_at(source)
            for stream, source in sources
            if source and source.function not in self.throttled
            for reader in stream.readers
            if reader.records and not reader.busy
        ]
        return min(moments, default=None)

    def _hand_out(self, source: Source | None, arn: str, reader: Reader) -> int:
        """Deliver one batch of a reader.

        Its records are ordered, so only one batch is in flight.
        """
        if source is None:
            reader.done(len(reader.records))
            return 0
        held = reader.busy or source.function in self.throttled
        batch = [] if held else reader.batch(source)
        if not batch or reader.due_at(source) > self.clock():
            return 0
        for operation in ("DescribeStream", "GetShardIterator", "GetRecords"):
            params = {"StreamArn": arn}
            self.meter.add(Call(source.function, "dynamodb", operation, params, {}, by_lambda=True))
        reader.busy = True

        def done(actor: Actor) -> None:
            reader.busy = False
            wrong = _failed(actor.answer) if source.partial and actor.error is None else []
            if actor.error is None and not wrong:
                reader.done(len(batch))
                return
            numbers = [change["dynamodb"]["SequenceNumber"] for change in batch]
            handled = min(numbers.index(number) for number in wrong) if wrong else 0
            given_up = reader.failed(source, len(batch), handled)
            if given_up:
                self._give_up(source, given_up)

        self.start(source.function, {"Records": batch}, done)
        return 1

    def _give_up(self, source: Source, records: Sequence[Mapping[str, Any]]) -> None:
        """Send a failed batch to the on-failure queue. The message holds positions, not records."""
        queue = self.sqs.by_arn[source.failed_to]
        numbers = [change["dynamodb"]["SequenceNumber"] for change in records]
        body = {
            "requestContext": {
                "functionArn": source.function,
                "condition": "RetryAttemptsExhausted",
            },
            "DDBStreamBatchInfo": {
                "startSequenceNumber": numbers[0],
                "endSequenceNumber": numbers[-1],
                "batchSize": len(numbers),
                "streamArn": source.arn,
                "shardId": SHARD,
            },
        }
        params = {"QueueUrl": queue.url, "MessageBody": json.dumps(body)}
        self.meter.add(Call(source.function, "sqs", "SendMessage", params, {}, by_lambda=True))
        self.sqs.send(queue, params)


def _failed(answer: Any) -> list[str]:
    return [failure["itemIdentifier"] for failure in (answer or {}).get("batchItemFailures", [])]
