"""Notification messages in the queues of the quick lane, each in a message group of its own.

A notification waits in the queue without cost until its retry time. Its own group keeps it from
delaying runs, because SQS delivers one message of a group at a time.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from punctual.aws.operator_settings import DispatchSwitch
from punctual.aws.sqs.sender import Queue
from punctual.domain.errors import Invalid
from punctual.domain.job_state import Lane, Priority
from punctual.domain.run import RunStatus
from punctual.engine.ports.notifications import Notification

LAYOUT = 1
KIND = "n"  # the layout number of a notification; a run message has none


class SqsNotifications:
    def __init__(self, queue: Queue, urls: Mapping[str, str], gate: DispatchSwitch) -> None:
        self._queue = queue
        self._urls = urls
        self._gate = gate

    def put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        """Send notifications. Return for each whether SQS accepted it.

        While dispatch is off, none is accepted, and the runs stay unrecorded.
        """
        if not self._gate.open():
            return [False] * len(notices)
        by_url: dict[str, dict[str, Notification]] = {}
        for notice in notices:
            by_url.setdefault(self._url(notice), {})[mark(notice)] = notice
        taken: dict[str, bool] = {}
        for url, some in by_url.items():
            answers = self._queue.send(url, [_entry(notice) for notice in some.values()])
            taken.update(zip(some, answers, strict=True))
        return [taken[mark(notice)] for notice in notices]

    def _url(self, notice: Notification) -> str:
        lane = Lane.QUICK.value
        return self._urls.get(f"{lane}-{notice.priority.name.lower()}") or self._urls[lane]


def to_body(notice: Notification) -> str:
    """Return the body in ASCII. SQS rejects some characters that a tenant name may contain."""
    values: dict[str, Any] = {
        KIND: LAYOUT,
        "t": notice.tenant,
        "j": notice.job_id,
        "r": notice.run_id,
        "e": notice.entry,
        "st": notice.status.value,
        "c": notice.occurrences,
        "v": notice.version,
        "b": notice.before,
        "p": int(notice.priority),
    }
    return json.dumps(values, separators=(",", ":"))


def parse_notice(body: str) -> Notification | None:
    """Return the notification, or None for another kind of message.

    Raise `Invalid` if this version cannot read it.
    """
    if not body.startswith(f'{{"{KIND}":'):
        return None
    try:
        return _notice(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a notice of Punctual, or one of a later version.") from error


def _notice(values: Mapping[str, Any]) -> Notification:
    if values[KIND] > LAYOUT:
        raise ValueError(values[KIND])
    return Notification(
        tenant=values["t"],
        job_id=values["j"],
        run_id=values["r"],
        entry=values["e"],
        status=RunStatus(values["st"]),
        occurrences=values["c"],
        version=values["v"],
        before=values["b"],
        priority=Priority(values["p"]),
    )


def mark(notice: Notification) -> str:
    """Return the deduplication id. SQS drops a repeat within five minutes."""
    return f"notice/{notice.job_id}/{notice.id}/{notice.status.value}"


def _entry(notice: Notification) -> dict[str, str]:
    return {
        "MessageBody": to_body(notice),
        "MessageGroupId": mark(notice),
        "MessageDeduplicationId": mark(notice),
    }
