"""Build the HTTP call of a webhook. It uses the client and the address checks of `http` tasks."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.domain.tenants.webhooks import signed_headers, webhook_retry_delay
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE
from punctual.engine.ports.notifications import Notification
from punctual.tasks.contract import Attempt, Outcome
from punctual.tasks.limits import RESERVED_DETAIL_TYPES

WEBHOOK_TIMEOUT = timedelta(seconds=10)
_EVENT_TYPE = RESERVED_DETAIL_TYPES[1]


class NoLog:
    """Drops log bytes. A webhook writes no log."""

    def log(self, _data: bytes) -> None: ...


class DeliveryResult(NamedTuple):
    """The result of a delivery: delivered, retried after `retry_after`, or given up (neither)."""

    delivered: bool = False
    retry_after: timedelta | None = None
    error: str = ""


def webhook_attempt(
    notification: Notification,
    url: str,
    data: Mapping[str, Any],
    secrets: Sequence[bytes],
    now: datetime,
    timeout: timedelta = WEBHOOK_TIMEOUT,
) -> Attempt:
    """Return the attempt that delivers the notification. Each attempt has a new signature."""
    body = msgspec.json.encode({"type": _EVENT_TYPE, "time": data["time"], "data": data})
    headers = {
        "Content-Type": JSON_MEDIA_TYPE,
        "Idempotency-Key": notification.id,
        **signed_headers(secrets, notification.id, now, body),
    }
    return Attempt(
        tenant=notification.tenant,
        job_id=notification.job_id,
        run_id=notification.run_id,
        name="",
        attempt_number=1,
        scheduled_at=now,
        task={"type": "http", "url": url, "headers": headers, "body": body.decode()},
        payload=None,
        timeout=timeout,
        token=0,
    )


def delivery_result(outcome: Outcome, notification: Notification, attempts: int) -> DeliveryResult:
    """Return the result after `attempts` delivery attempts."""
    if outcome.status == "SUCCESS":
        return DeliveryResult(delivered=True)
    retry_after = webhook_retry_delay(notification.id, attempts) if outcome.retryable else None
    return DeliveryResult(retry_after=retry_after, error=outcome.error)
