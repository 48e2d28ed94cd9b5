"""The pause of a job: its begin, its change, and its end by a client or at its time."""

from datetime import datetime

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.events import Pause, Resume
from punctual.domain.job_state import CatchUp, JobPause, JobStatus, MisfirePolicy
from punctual.domain.run import Trigger
from punctual.domain.transitions.firing import process_due
from punctual.domain.transitions.wait_queue import (
    admit,
    requeue_front,
    take_back_fired_ahead,
    unclaimed_runs,
)
from punctual.domain.utc import MICROSECOND


def pause(draft: Draft, event: Pause) -> None:
    """Pause the job. Scheduled runs that have not begun wait; requested runs go on.

    A paused job takes `until` and `note` of the event. Its pause has begun before.
    """
    if draft.pause is not None:
        if (draft.pause.until, draft.pause.note) != (event.until, event.note):
            draft.pause = replace(draft.pause, until=event.until, note=event.note)
            draft.mark_client_change()
        return
    process_due(draft)
    take_back_fired_ahead(draft)
    requeue_front(draft, [run for run in unclaimed_runs(draft) if run.trigger is Trigger.SCHEDULE])
    draft.status = JobStatus.PAUSED
    draft.pause = JobPause(
        at=draft.now,
        by=event.by,
        until=event.until,
        note=event.note,
        operation_id=event.operation_id,
    )
    draft.mark_client_change()
    admit(draft)


def resume(draft: Draft, event: Resume) -> None:
    """Resume the job. The misfire policy decides about the occurrences up to now."""
    if draft.status is not JobStatus.PAUSED:
        return
    _end_pause(draft, draft.now, event.misfire or draft.limits.misfire)
    draft.mark_client_change()
    process_due(draft)


def resume_at_its_time(draft: Draft) -> None:
    """Resume the job if its pause ends by now.

    An occurrence at the end of the pause is not missed. It runs as any other.
    """
    if draft.pause is None or draft.pause.until is None or draft.pause.until > draft.now:
        return
    _end_pause(draft, draft.pause.until - MICROSECOND, draft.limits.misfire)


def _end_pause(draft: Draft, missed_until: datetime, policy: MisfirePolicy) -> None:
    draft.status = JobStatus.SCHEDULED
    draft.pause = None
    draft.catch_up = CatchUp(until=missed_until, policy=policy, after_pause=True)
