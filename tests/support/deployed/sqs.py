"""SQS on a manual clock: delays, visibility, groups, deduplication, dead letters.

It answers a boto3 client in place of an emulator. Available emulators forget deduplication ids, and
use the wall clock for visibility. Queues are built from the template's attributes.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

from punctual.engine.ports.clock import Clock

REMEMBERED = timedelta(minutes=5)


class Answer(NamedTuple):
    status_code: int


@dataclass
class QueuedMessage:
    """One message. `receipt` changes with every delivery."""

    number: int
    body: str
    sent_at: datetime
    visible_at: datetime
    group: str = ""
    dedup: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    receipt: str = ""
    received: int = 0

    @property
    def id(self) -> str:
        return f"message-{self.number:06d}"


@dataclass
class Queue:
    name: str
    url: str
    arn: str
    visibility: timedelta
    retention: timedelta
    dead_letters: str = ""  # the ARN of the dead-letter queue
    max_receives: int = 0
    delay: timedelta = timedelta(0)
    messages: list[QueuedMessage] = field(default_factory=list)
    remembered: dict[str, datetime] = field(default_factory=dict)

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


def queue_from(url: str, attributes: Mapping[str, str]) -> Queue:
    """Return a queue with the attributes of a template's queue."""
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    return Queue(
        name=url.rsplit("/", 1)[-1],
        url=url,
        arn=attributes["QueueArn"],
        visibility=timedelta(seconds=int(attributes["VisibilityTimeout"])),
        retention=timedelta(seconds=int(attributes["MessageRetentionPeriod"])),
        dead_letters=policy.get("deadLetterTargetArn", ""),
        max_receives=int(policy.get("maxReceiveCount", 0)),
        delay=timedelta(seconds=int(attributes.get("DelaySeconds", 0))),
    )


class Sqs:
    def __init__(
        self,
        clock: Clock,
        queues: Sequence[Queue],
        latency: Callable[[], timedelta] = timedelta,
    ) -> None:
        self._clock = clock
        self._latency = latency  # of the messages of one request, without delays
        self._late = timedelta()
        self._numbers = count(1)
        self.by_url = {queue.url: queue for queue in queues}
        self.by_arn = {queue.arn: queue for queue in queues}

    def add(self, queue: Queue) -> None:
        self.by_url[queue.url] = self.by_arn[queue.arn] = queue

    def answer(self, client: Any) -> None:
        """Answer the client's calls from here on."""
        for operation in (
            "ReceiveMessage",
            "SendMessage",
            "SendMessageBatch",
            "ChangeMessageVisibility",
            "ChangeMessageVisibilityBatch",
            "DeleteMessage",
            "DeleteMessageBatch",
        ):
            client.meta.events.register("before-parameter-build.sqs." + operation, _keep_params)
            client.meta.events.register_last(f"before-call.sqs.{operation}", self._called)

    def _called(self, model: Any, context: Mapping[str, Any], **_: Any) -> Any:
        params = context["sqs_params"]
        queue = self.by_url.get(params["QueueUrl"])
        if queue is None:
            return Answer(400), {
                "Error": {"Code": "AWS.SimpleQueueService.NonExistentQueue", "Message": "none"}
            }
        if model.name == "ReceiveMessage":
            messages = self.receive(queue, params["MaxNumberOfMessages"])
            return Answer(200), {"Messages": [_shown(message) for message in messages]}
        if model.name.startswith("SendMessage"):
            self._late = self._latency()
        if not model.name.endswith("Batch"):
            return Answer(200), self._one(queue, model.name, params)
        done = [
            {"Id": entry["Id"], **self._one(queue, model.name.removesuffix("Batch"), entry)}
            for entry in params["Entries"]
        ]
        return Answer(200), {"Successful": done}

    def _one(self, queue: Queue, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "SendMessage":
            return self.send(queue, params)
        message = next(
            (message for message in queue.messages if message.receipt == params["ReceiptHandle"]),
            None,
        )
        if message is not None and operation == "DeleteMessage":
            queue.messages.remove(message)
        elif message is not None:
            seconds = timedelta(seconds=params["VisibilityTimeout"])
            message.visible_at = self._clock() + seconds
        return {}

    def send(self, queue: Queue, params: Mapping[str, Any]) -> dict[str, Any]:
        now = self._clock()
        dedup = params.get("MessageDeduplicationId", "")
        group = params.get("MessageGroupId", "")
        assert queue.fifo == bool(dedup and group), "a FIFO message has a group and an id"
        assert not (queue.fifo and "DelaySeconds" in params), "FIFO delays no single message"
        mark = f"{group}\0{dedup}"  # scoped to the message group
        known = queue.remembered.get(mark)
        message_id = "sent before"
        if not queue.fifo or known is None or known + REMEMBERED <= now:
            queue.remembered[mark] = now
            delay = timedelta(seconds=params.get("DelaySeconds", queue.delay.total_seconds()))
            message = QueuedMessage(
                next(self._numbers),
                params["MessageBody"],
                now,
                now + delay + self._late,
                group,
                dedup,
                params.get("MessageAttributes", {}),
            )
            queue.messages.append(message)
            message_id = message.id
        digest = hashlib.md5(params["MessageBody"].encode(), usedforsecurity=False)
        return {"MessageId": message_id, "MD5OfMessageBody": digest.hexdigest()}

    def receive(self, queue: Queue, limit: int) -> list[QueuedMessage]:
        """Receive messages. A message that was received too often goes to the dead letters."""
        now = self._clock()
        busy = {
            message.group for message in queue.messages if queue.fifo and message.visible_at > now
        }
        messages: list[QueuedMessage] = []
        for message in list(queue.messages):
            if message.sent_at + queue.retention <= now:
                queue.messages.remove(message)
                continue
            if message.visible_at > now or message.group in busy or len(messages) == limit:
                if queue.fifo:
                    busy.add(message.group)
                continue
            if queue.max_receives and message.received >= queue.max_receives:
                self.move_to_dead_letters(queue, message)
                continue
            message.received += 1
            message.receipt = f"{message.id}/{message.received}"
            message.visible_at = now + queue.visibility
            messages.append(message)
        return messages

    def move_to_dead_letters(self, queue: Queue, message: QueuedMessage) -> None:
        """Move a message to the dead letters."""
        queue.messages.remove(message)
        message.received, message.visible_at = 0, self._clock()
        self.by_arn[queue.dead_letters].messages.append(message)

    def delete(self, queue: Queue, messages: Sequence[QueuedMessage]) -> None:
        """Delete messages that were not delivered again."""
        for message in messages:
            if message in queue.messages:
                queue.messages.remove(message)

    def next_at(self, now: datetime) -> datetime | None:
        """Return the time at which the next hidden message becomes visible."""
        moments = (
            message.visible_at for queue in self.by_url.values() for message in queue.messages
        )
        return min((at for at in moments if at > now), default=None)


def _keep_params(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["sqs_params"] = dict(params)


def _shown(message: QueuedMessage) -> dict[str, str]:
    """Return a message in the format of ReceiveMessage."""
    digest = hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest()
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.receipt,
        "Body": message.body,
        "MD5OfBody": digest,
    }


def record(queue: Queue, message: QueuedMessage, region: str) -> dict[str, Any]:
    """Return a message in the format of a Lambda event."""
    digest = hashlib.md5(message.body.encode(), usedforsecurity=False)
    milliseconds = str(int(message.sent_at.timestamp() * 1000))
    attributes = {
        "ApproximateReceiveCount": str(message.received),
        "SentTimestamp": milliseconds,
        "SenderId": "AROAEXAMPLE:function",
        "ApproximateFirstReceiveTimestamp": milliseconds,
    }
    if queue.fifo:
        attributes |= {
            "MessageGroupId": message.group,
            "MessageDeduplicationId": message.dedup,
            "SequenceNumber": f"{message.number:020d}",
        }
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": dict(message.attributes),
        "md5OfBody": digest.hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": region,
    }
