"""Run messages in SQS FIFO queues: one queue for each lane and priority.

Each message has a group of its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.sqs.sender import Queue
from punctual.domain.errors import Invalid
from punctual.domain.job_state import Lane, Priority
from punctual.domain.utc import Moment
from punctual.engine.ports.run_queue import Message

LAYOUT = 1


class SqsMessages:
    def __init__(self, queue: Queue, urls: Mapping[str, str]) -> None:
        self._queue = queue
        self._urls = urls

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Send by priority. A message that occurs twice is sent once."""
        by_url: dict[str, dict[str, Message]] = {}
        for message in sorted(messages, key=lambda one: one.priority):
            by_url.setdefault(self._url(message), {})[_mark(message)] = message
        taken: dict[str, bool] = {}
        for url, some in by_url.items():
            answers = self._queue.send(url, [_entry(message) for message in some.values()])
            taken.update(zip(some, answers, strict=True))
        return [taken[_mark(message)] for message in messages]

    def _url(self, message: Message) -> str:
        lane = message.lane.value
        return self._urls.get(f"{lane}-{message.priority.name.lower()}") or self._urls[lane]


def to_body(message: Message) -> str:
    """Return the body in ASCII. SQS rejects some characters that a tenant name may contain."""
    values: dict[str, Any] = {
        "f": LAYOUT,
        "t": message.tenant,
        "j": message.job_id,
        "r": message.run_id,
        "due": message.due_at.isoformat(),
        "p": int(message.priority),
        "l": message.lane.value,
        "v": message.version,
        "k": message.task_type,
    }
    return json.dumps(values, separators=(",", ":"))


def parse_message(body: str) -> Message:
    try:
        return _message(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a message of Punctual, or one of a later version.") from error


def _message(values: Mapping[str, Any]) -> Message:
    if values["f"] > LAYOUT:
        raise ValueError(values["f"])
    return Message(
        tenant=values["t"],
        job_id=values["j"],
        run_id=values["r"],
        due_at=msgspec.convert(values["due"], Moment),
        priority=Priority(values["p"]),
        lane=Lane(values["l"]),
        version=values["v"],
        task_type=values["k"],
    )


def _entry(message: Message) -> dict[str, str]:
    return {
        "MessageBody": to_body(message),
        # SQS delivers one message of a group at a time. In a larger group, the hidden message of a
        # crashed executor would delay later messages.
        "MessageGroupId": _mark(message),
        # Without the version, SQS would drop a run that is sent again within five minutes.
        "MessageDeduplicationId": _mark(message),
    }


def _mark(message: Message) -> str:
    return f"{message.job_id}/{message.run_id}/{message.version}"
