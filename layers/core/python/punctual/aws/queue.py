"""Messages: SQS FIFO, a queue a lane and priority, a group a run."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from punctual.aws.sqs import Queue
from punctual.domain.errors import Invalid
from punctual.domain.head import Lane, Priority
from punctual.engine.ports import Message

LAYOUT = 1


class SqsMessages:
    def __init__(self, queue: Queue, urls: Mapping[str, str]) -> None:
        self._queue = queue
        self._urls = urls

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """The most urgent queues first; a twin of the same version is sent once."""
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
    """ASCII, for SQS refuses some characters that a tenant's name may hold."""
    return json.dumps(
        {
            "f": LAYOUT,
            "t": message.tenant,
            "j": message.job_id,
            "r": message.run_id,
            "due": message.due_at.isoformat(),
            "p": int(message.priority),
            "l": message.lane.value,
            "v": message.version,
            "k": message.task_type,
        },
        separators=(",", ":"),
    )


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
        due_at=datetime.fromisoformat(values["due"]),
        priority=Priority(values["p"]),
        lane=Lane(values["l"]),
        version=values["v"],
        task_type=values["k"],
    )


def _entry(message: Message) -> dict[str, str]:
    return {
        "MessageBody": to_body(message),
        # A group is handed out to one at a time: a group a job would make its runs queue up.
        "MessageGroupId": f"{message.job_id}/{message.run_id}",
        # Without the version, a run sent again within five minutes would be dropped in silence.
        "MessageDeduplicationId": _mark(message),
    }


def _mark(message: Message) -> str:
    return f"{message.job_id}/{message.run_id}/{message.version}"
