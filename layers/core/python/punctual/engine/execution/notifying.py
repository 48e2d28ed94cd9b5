"""Whom a notice is for, and what there is to tell: by what stands when it is told."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.domain.run import Run
from punctual.domain.tenants.notify import told_of
from punctual.engine.execution.notifications import Notification
from punctual.engine.ports.bundle import Ports
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import Key, RunKey

# The secret bytes that a tenant's webhooks are signed by, the newest first.
Secrets = Callable[[str], Sequence[bytes]]


class NotificationDelivery(NamedTuple):
    url: str
    run: Run


def find(ports: Ports, notice: Notification, now: datetime) -> NotificationDelivery | None:
    """None where nobody is to be told: the job is gone, says so no more, or the run ended else."""
    key = Key(notice.tenant, notice.job_id)
    stored = ports.heads.load([key]).get(key)
    if stored is None or notice.entry not in told_of(stored.head.notify, notice.status):
        return None
    wanted = (key, stored.head.current.body)
    body = ports.heads.bodies([wanted]).get(wanted)
    entries = [] if body is None else body.document.get("notify") or []
    run = _run(ports, notice, stored, now)
    if run is None or run.status is not notice.status or notice.entry >= len(entries):
        return None
    return NotificationDelivery(entries[notice.entry]["url"], run)


def _run(ports: Ports, notice: Notification, stored: StoredState, now: datetime) -> Run | None:
    """A notice is there before the row of its run is: until then the head has it."""
    for run in stored.head.ended:
        if run.run_id == notice.run_id:
            return run
    key = RunKey(notice.tenant, notice.job_id, notice.run_id)
    row = ports.history.get([key], now).get(key)
    return None if row is None else row.run
