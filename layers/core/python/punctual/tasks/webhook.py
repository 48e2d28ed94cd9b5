"""Webhooks: one call that tells of a run, by the same client and guards as the `http` task."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.domain.tenants.webhooks import again_after, signed_headers
from punctual.engine.execution.notifications import Notification
from punctual.tasks.contract import Attempt, Outcome
from punctual.tasks.http.request import JSON_TYPE
from punctual.tasks.limits import OWN_DETAIL_TYPES

TIMEOUT = timedelta(seconds=10)
_TYPE = OWN_DETAIL_TYPES[1]


class NoLog:
    """A webhook has nothing to print."""

    def log(self, _data: bytes) -> None: ...


class Verdict(NamedTuple):
    """What becomes of a notice: told, to be tried again after so long, or neither: given up."""

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
    """The call, as a runner of `http` tasks makes it; signed anew for each try."""
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
    """`tries`: how often it was tried by now."""
    if outcome.status == "SUCCESS":
        return Verdict(told=True)
    again = again_after(notice.id, tries) if outcome.retryable else None
    return Verdict(again=again, error=outcome.error)
