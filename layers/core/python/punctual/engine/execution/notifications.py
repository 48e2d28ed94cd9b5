"""Notifications of ended runs: derived when a decision records the run, resolved at delivery."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from punctual.domain.decision import Decision
from punctual.domain.job_state import JobState
from punctual.domain.run import ENDED, Run
from punctual.domain.tenants.notify import told_of
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.rows import Key, RunKey


def notices_of(decision: Decision, before: JobState | None) -> Iterator[Notification]:
    """Yield the notifications of recorded runs. `before` is the job state as it was read."""
    head = decision.head
    if not head.notify:
        return
    stood = {run.run_id: run.status.value for run in before.runs} if before is not None else {}
    for run in decision.records:
        for entry in told_of(head.notify, run.status) if run.status in ENDED else ():
            yield Notification(
                head.tenant,
                head.job_id,
                run.run_id,
                entry,
                run.status,
                run.count,
                head.version,
                stood.get(run.run_id, ""),
                head.current.priority,
            )


class NotificationDelivery(NamedTuple):
    url: str
    run: Run


def find(
    heads: JobStates, history: History, notice: Notification, now: datetime
) -> NotificationDelivery | None:
    """Return the delivery of a notification, or None if it no longer applies.

    The job may be gone, its `notify` list may have changed, or the run may have another status.
    """
    key = Key(notice.tenant, notice.job_id)
    stored = heads.load([key]).get(key)
    if stored is None or notice.entry not in told_of(stored.head.notify, notice.status):
        return None
    wanted = (key, stored.head.current.body)
    body = heads.bodies([wanted]).get(wanted)
    entries = [] if body is None else body.document.get("notify") or []
    run = _run(history, notice, stored, now)
    if run is None or run.status is not notice.status or notice.entry >= len(entries):
        return None
    return NotificationDelivery(entries[notice.entry]["url"], run)


def _run(history: History, notice: Notification, stored: StoredState, now: datetime) -> Run | None:
    """Return the run from the job state, or from history. The notification precedes its row."""
    for run in stored.head.ended:
        if run.run_id == notice.run_id:
            return run
    key = RunKey(notice.tenant, notice.job_id, notice.run_id)
    row = history.get([key], now).get(key)
    return None if row is None else row.run
