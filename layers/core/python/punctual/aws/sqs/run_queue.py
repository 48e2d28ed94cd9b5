"""Run messages in SQS FIFO queues: one queue for each lane and priority.

Each message has a group of its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.sqs.sender import SqsBatchSender, queue_url
from punctual.domain.errors import Invalid
from punctual.domain.job_state import Lane, Priority
from punctual.domain.timestamps import Moment
from punctual.engine.ports.run_queue import Message

RUN_MESSAGE_LAYOUT = 1


class SqsRunQueue:
    def __init__(self, sender: SqsBatchSender, urls: Mapping[str, str]) -> None:
        self._sender = sender
        self._urls = urls

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Send by priority. A message that occurs twice is sent once."""
        by_url: dict[str, dict[str, Message]] = {}
        for message in sorted(messages, key=lambda item: item.priority):
            url = queue_url(self._urls, message.lane, message.priority)
            by_url.setdefault(url, {})[_deduplication_id(message)] = message
        accepted: dict[str, bool] = {}
        for url, batch in by_url.items():
            accepted_flags = self._sender.send(url, [_entry(message) for message in batch.values()])
            accepted.update(zip(batch, accepted_flags, strict=True))
        return [accepted[_deduplication_id(message)] for message in messages]


def to_body(message: Message) -> str:
    """Return the body in ASCII. SQS rejects some characters that a tenant name may contain."""
    values: dict[str, Any] = {
        "f": RUN_MESSAGE_LAYOUT,
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
        return _to_message(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a message of Punctual, or a later version wrote it.") from error


def _to_message(values: Mapping[str, Any]) -> Message:
    if values["f"] > RUN_MESSAGE_LAYOUT:
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
        "MessageGroupId": _deduplication_id(message),
        # Without the version, SQS would drop a run that is sent again within five minutes.
        "MessageDeduplicationId": _deduplication_id(message),
    }


def _deduplication_id(message: Message) -> str:
    return f"{message.job_id}/{message.run_id}/{message.version}"
