"""Build the HTTP call of a webhook. It uses the client and the address checks of `http` tasks."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.domain.tenants.webhooks import again_after, signed_headers
from punctual.engine.ports.notifications import Notification
from punctual.tasks.contract import Attempt, Outcome
from punctual.tasks.http.request import JSON_TYPE
from punctual.tasks.limits import OWN_DETAIL_TYPES

TIMEOUT = timedelta(seconds=10)
_TYPE = OWN_DETAIL_TYPES[1]


class NoLog:
    """Drops log bytes. A webhook writes no log."""

    def log(self, _data: bytes) -> None: ...


class Verdict(NamedTuple):
    """The result of a delivery: delivered (`told`), retry after `again`, or neither if given up."""

    told: bool = False
    again: timedelta | None = None
    error: str = ""


def webhook(
    notice: Notification,
    url: str,
    data: Mapping[str, Any],
    secrets: Sequence[bytes],
    now: datetime,
    timeout: timedelta = TIMEOUT,
) -> Attempt:
    """Return the attempt that delivers the notification. Each attempt has a new signature."""
    body = msgspec.json.encode({"type": _TYPE, "time": data["time"], "data": data})
    headers = {
        "Content-Type": JSON_TYPE,
        "Idempotency-Key": notice.id,
        **signed_headers(secrets, notice.id, now, body),
    }
    return Attempt(
        tenant=notice.tenant,
        job_id=notice.job_id,
        run_id=notice.run_id,
        name="",
        attempt_number=1,
        scheduled_at=now,
        task={"type": "http", "url": url, "headers": headers, "body": body.decode()},
        payload=None,
        timeout=timeout,
        token=0,
    )


def judged(outcome: Outcome, notice: Notification, tries: int) -> Verdict:
    """Return the verdict after `tries` delivery attempts."""
    if outcome.status == "SUCCESS":
        return Verdict(told=True)
    again = again_after(notice.id, tries) if outcome.retryable else None
    return Verdict(again=again, error=outcome.error)
