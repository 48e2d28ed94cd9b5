"""Messages: SQS FIFO, a queue a lane and priority, a group a message."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.sqs.sender import Queue
from punctual.domain.errors import Invalid
from punctual.domain.job_state import JobState, Lane, Priority
from punctual.domain.utc import Moment
from punctual.engine.ports.run_queue import Message

LAYOUT = 1
MOST = 3_072  # bytes of a message with a head: ten are half of what SQS bills as one request


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
    """ASCII, for SQS refuses some characters that a tenant's name may hold.

    Without its head where that is large, or of another swap than the one that sends it.
    """
    head = message.head
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
    if head is not None and _is_of(head, message):
        text = _text({**values, "h": (keys.LAYOUT, _told(head))})
        if len(text) <= MOST:
            return text
    return _text(values)


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))


def _is_of(head: JobState, message: Message) -> bool:
    named = (message.tenant, message.job_id, message.version)
    is_marked = bool(head.writers and head.writers[-1])  # by which its swap tells it from made up
    is_written = head.version > 0  # a swap of version 0 makes a new job, and asks for no mark
    return is_written and is_marked and (head.tenant, head.job_id, head.version) == named


def _told(head: JobState) -> dict[str, Any]:
    """Whose it is, the message says."""
    told: dict[str, Any] = msgspec.to_builtins(head, str_keys=True)
    del told["tenant"], told["job_id"]
    return told


def parse_message(body: str) -> Message:
    try:
        return _message(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a message of Punctual, or one of a later version.") from error


def _message(values: Mapping[str, Any]) -> Message:
    if values["f"] > LAYOUT:
        raise ValueError(values["f"])
    message = Message(
        tenant=values["t"],
        job_id=values["j"],
        run_id=values["r"],
        due_at=msgspec.convert(values["due"], Moment),
        priority=Priority(values["p"]),
        lane=Lane(values["l"]),
        version=values["v"],
        task_type=values["k"],
    )
    return message._replace(head=_head(values["h"], message)) if "h" in values else message


def _head(told: Any, message: Message) -> JobState | None:
    """None for what this version does not read as it was meant: then it is read from its row."""
    try:
        layout, fields = told
        whose = {"tenant": message.tenant, "job_id": message.job_id}
        head = msgspec.convert({**fields, **whose}, JobState, str_keys=True)
    except (ValueError, TypeError):
        return None
    return head if layout == keys.LAYOUT and _is_of(head, message) else None


def _entry(message: Message) -> dict[str, str]:
    return {
        "MessageBody": to_body(message),
        # A group is handed out to one at a time: with any wider one, a message whose receiver died
        # would hold up those sent after it for as long as it stays hidden.
        "MessageGroupId": _mark(message),
        # Without the version, a run sent again within five minutes would be dropped in silence.
        "MessageDeduplicationId": _mark(message),
    }


def _mark(message: Message) -> str:
    return f"{message.job_id}/{message.run_id}/{message.version}"
