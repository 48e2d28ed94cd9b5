"""Notification messages in the queues of the quick lane, each in a message group of its own.

A notification waits in the queue without cost until its retry time. Its own group keeps it from
delaying runs, because SQS delivers one message of a group at a time.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from punctual.aws.operator_settings import DispatchSwitch
from punctual.aws.sqs.sender import SqsBatchSender, queue_url
from punctual.domain.errors import Invalid
from punctual.domain.job_state import Lane, Priority
from punctual.domain.run import RunStatus
from punctual.engine.ports.notifications import Notification

NOTIFICATION_LAYOUT = 1
NOTIFICATION_LAYOUT_FIELD = "n"  # the layout number of a notification; a run message has none


class SqsNotifications:
    def __init__(
        self, sender: SqsBatchSender, urls: Mapping[str, str], dispatch_switch: DispatchSwitch
    ) -> None:
        self._sender = sender
        self._urls = urls
        self._dispatch_switch = dispatch_switch

    def put(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        """Send notifications. Return for each whether SQS accepted it.

        While dispatch is off, none is accepted, and the runs stay unrecorded.
        """
        if not self._dispatch_switch.is_on():
            return [False] * len(notifications)
        by_url: dict[str, dict[str, Notification]] = {}
        for notification in notifications:
            url = queue_url(self._urls, Lane.QUICK, notification.priority)
            by_url.setdefault(url, {})[deduplication_id(notification)] = notification
        accepted: dict[str, bool] = {}
        for url, batch in by_url.items():
            accepted_flags = self._sender.send(
                url, [_entry(notification) for notification in batch.values()]
            )
            accepted.update(zip(batch, accepted_flags, strict=True))
        return [accepted[deduplication_id(notification)] for notification in notifications]


def to_body(notification: Notification) -> str:
    """Return the body in ASCII. SQS rejects some characters that a tenant name may contain."""
    values: dict[str, Any] = {
        NOTIFICATION_LAYOUT_FIELD: NOTIFICATION_LAYOUT,
        "t": notification.tenant,
        "j": notification.job_id,
        "r": notification.run_id,
        "e": notification.entry,
        "st": notification.status.value,
        "c": notification.occurrences,
        "v": notification.version,
        "b": notification.previous_status,
        "p": int(notification.priority),
    }
    return json.dumps(values, separators=(",", ":"))


def parse_notification(body: str) -> Notification | None:
    """Return the notification, or None for another kind of message.

    Raise `Invalid` if this version cannot read it.
    """
    if not body.startswith(f'{{"{NOTIFICATION_LAYOUT_FIELD}":'):
        return None
    try:
        return _to_notification(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(
            "This is not a notification of Punctual, or a later version wrote it."
        ) from error


def _to_notification(values: Mapping[str, Any]) -> Notification:
    if values[NOTIFICATION_LAYOUT_FIELD] > NOTIFICATION_LAYOUT:
        raise ValueError(values[NOTIFICATION_LAYOUT_FIELD])
    return Notification(
        tenant=values["t"],
        job_id=values["j"],
        run_id=values["r"],
        entry=values["e"],
        status=RunStatus(values["st"]),
        occurrences=values["c"],
        version=values["v"],
        previous_status=values["b"],
        priority=Priority(values["p"]),
    )


def deduplication_id(notification: Notification) -> str:
    """Return the deduplication id. SQS drops a repeat within five minutes."""
    return f"notice/{notification.job_id}/{notification.id}/{notification.status.value}"


def _entry(notification: Notification) -> dict[str, str]:
    return {
        "MessageBody": to_body(notification),
        "MessageGroupId": deduplication_id(notification),
        "MessageDeduplicationId": deduplication_id(notification),
    }
