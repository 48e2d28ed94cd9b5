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
class Letter:
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
    most: int = 0
    delay: timedelta = timedelta(0)
    letters: list[Letter] = field(default_factory=list)
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
        most=int(policy.get("maxReceiveCount", 0)),
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
            letters = self.receive(queue, params["MaxNumberOfMessages"])
            return Answer(200), {"Messages": [_shown(one) for one in letters]}
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
        letter = next(
            (one for one in queue.letters if one.receipt == params["ReceiptHandle"]), None
        )
        if letter is not None and operation == "DeleteMessage":
            queue.letters.remove(letter)
        elif letter is not None:
            seconds = timedelta(seconds=params["VisibilityTimeout"])
            letter.visible_at = self._clock() + seconds
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
            letter = Letter(
                next(self._numbers),
                params["MessageBody"],
                now,
                now + delay + self._late,
                group,
                dedup,
                params.get("MessageAttributes", {}),
            )
            queue.letters.append(letter)
            message_id = letter.id
        digest = hashlib.md5(params["MessageBody"].encode(), usedforsecurity=False)
        return {"MessageId": message_id, "MD5OfMessageBody": digest.hexdigest()}

    def receive(self, queue: Queue, most: int) -> list[Letter]:
        """Receive messages. A message that was received too often goes to the dead letters."""
        now = self._clock()
        busy = {one.group for one in queue.letters if queue.fifo and one.visible_at > now}
        found: list[Letter] = []
        for letter in list(queue.letters):
            if letter.sent_at + queue.retention <= now:
                queue.letters.remove(letter)
                continue
            if letter.visible_at > now or letter.group in busy or len(found) == most:
                if queue.fifo:
                    busy.add(letter.group)
                continue
            if queue.most and letter.received >= queue.most:
                self.bury(queue, letter)
                continue
            letter.received += 1
            letter.receipt = f"{letter.id}/{letter.received}"
            letter.visible_at = now + queue.visibility
            found.append(letter)
        return found

    def bury(self, queue: Queue, letter: Letter) -> None:
        """Move a message to the dead letters."""
        queue.letters.remove(letter)
        letter.received, letter.visible_at = 0, self._clock()
        self.by_arn[queue.dead_letters].letters.append(letter)

    def delete(self, queue: Queue, letters: Sequence[Letter]) -> None:
        """Delete messages that were not delivered again."""
        for letter in letters:
            if letter in queue.letters:
                queue.letters.remove(letter)

    def next_at(self, now: datetime) -> datetime | None:
        """Return the time at which the next hidden message becomes visible."""
        moments = (one.visible_at for queue in self.by_url.values() for one in queue.letters)
        return min((at for at in moments if at > now), default=None)


def _keep_params(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["sqs_params"] = dict(params)


def _shown(letter: Letter) -> dict[str, str]:
    """Return a message in the format of ReceiveMessage."""
    digest = hashlib.md5(letter.body.encode(), usedforsecurity=False).hexdigest()
    return {
        "MessageId": letter.id,
        "ReceiptHandle": letter.receipt,
        "Body": letter.body,
        "MD5OfBody": digest,
    }


def record(queue: Queue, letter: Letter, region: str) -> dict[str, Any]:
    """Return a message in the format of a Lambda event."""
    digest = hashlib.md5(letter.body.encode(), usedforsecurity=False)
    milliseconds = str(int(letter.sent_at.timestamp() * 1000))
    attributes = {
        "ApproximateReceiveCount": str(letter.received),
        "SentTimestamp": milliseconds,
        "SenderId": "AROAEXAMPLE:function",
        "ApproximateFirstReceiveTimestamp": milliseconds,
    }
    if queue.fifo:
        attributes |= {
            "MessageGroupId": letter.group,
            "MessageDeduplicationId": letter.dedup,
            "SequenceNumber": f"{letter.number:020d}",
        }
    return {
        "messageId": letter.id,
        "receiptHandle": letter.receipt,
        "body": letter.body,
        "attributes": attributes,
        "messageAttributes": dict(letter.attributes),
        "md5OfBody": digest.hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": region,
    }
