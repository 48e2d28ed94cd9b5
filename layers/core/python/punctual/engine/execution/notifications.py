"""Notifications of ended runs: derived when a decision records the run, resolved at delivery."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from punctual.domain.decision import Decision
from punctual.domain.job_state import JobState
from punctual.domain.run import ENDED_RUN_STATUSES, Run
from punctual.domain.tenants.notify import entries_to_notify
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.rows import JobKey, RunKey


def derive_notifications(
    decision: Decision, previous_state: JobState | None
) -> Iterator[Notification]:
    """Yield the notifications of recorded runs. `previous_state` is the state as it was read."""
    state = decision.state
    if not state.notify:
        return
    previous_statuses = (
        {run.run_id: run.status.value for run in previous_state.runs}
        if previous_state is not None
        else {}
    )
    for run in decision.runs_to_record:
        for entry in (
            entries_to_notify(state.notify, run.status) if run.status in ENDED_RUN_STATUSES else ()
        ):
            yield Notification(
                state.tenant,
                state.job_id,
                run.run_id,
                entry,
                run.status,
                run.occurrence_count,
                state.version,
                previous_statuses.get(run.run_id, ""),
                state.current_rules.priority,
            )


class NotificationDelivery(NamedTuple):
    url: str
    run: Run


def find_delivery(
    job_states: JobStates, history: History, notification: Notification, now: datetime
) -> NotificationDelivery | None:
    """Return the delivery of a notification, or None if it no longer applies.

    The job may be gone, its `notify` list may have changed, or the run may have another status.
    """
    key = JobKey(notification.tenant, notification.job_id)
    stored = job_states.load([key]).get(key)
    if stored is None or notification.entry not in entries_to_notify(
        stored.state.notify, notification.status
    ):
        return None
    definition_key = (key, stored.state.current_rules.definition_ref)
    definition = job_states.load_definitions([definition_key]).get(definition_key)
    entries = [] if definition is None else definition.document.get("notify") or []
    run = _find_run(history, notification, stored, now)
    if run is None or run.status is not notification.status or notification.entry >= len(entries):
        return None
    return NotificationDelivery(entries[notification.entry]["url"], run)


def _find_run(
    history: History, notification: Notification, stored: StoredState, now: datetime
) -> Run | None:
    """Return the run from the job state, or from history. The notification precedes its row."""
    for run in stored.state.unrecorded:
        if run.run_id == notification.run_id:
            return run
    key = RunKey(notification.tenant, notification.job_id, notification.run_id)
    row = history.get([key], now).get(key)
    return None if row is None else row.run
