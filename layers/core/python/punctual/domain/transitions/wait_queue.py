"""The places and the wait queue of a job: start runs, let them wait, and send them again."""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.durations import MAX_RESEND_DELAY, RESEND_DELAY
from punctual.domain.job_state import JobStatus, OverlapPolicy
from punctual.domain.run import (
    TIMED_WAIT_REASONS,
    Reason,
    Run,
    RunStatus,
    Trigger,
    WaitingRun,
    from_waiting,
    to_waiting,
)
from punctual.domain.schedules.schedule import occurrences
from punctual.domain.transitions.attempts import cancel_run, end_run, end_waiting_run, requeue
from punctual.domain.utc import MICROSECOND

MAX_WAITING_RUNS = 1_500  # a DynamoDB row holds 400 KB, and all of these may end in one decision
MAX_CAUGHT_UP_RUNS = 1_000  # RUN_ALL runs at most the latest 1,000
Refusal = tuple[RunStatus, Reason]


def offer(draft: Draft, new_run: WaitingRun) -> Refusal | None:
    """Queue a new run, or apply the overlap policy. Return the refusal, or None."""
    deadline_at = draft.deadline_of(new_run)
    if deadline_at is not None and deadline_at <= draft.now:
        return RunStatus.MISSED, Reason.DEADLINE
    if has_room(draft) and not any(_may_start(draft, waiting) for waiting in draft.wait_queue):
        queue_run(draft, new_run)
        return None
    if _counts_as_waiting(new_run):
        if draft.limits.overlap is OverlapPolicy.SKIP:
            return RunStatus.SKIPPED, Reason.OVERLAP
        if draft.limits.overlap is OverlapPolicy.REPLACE:
            _cancel_oldest(draft)
        elif _is_full(draft):
            return RunStatus.SKIPPED, Reason.QUEUE_FULL
    draft.wait_queue.append(new_run)
    draft.latest_run_id = new_run.run_id
    return None


def _is_full(draft: Draft) -> bool:
    waiting_count = sum(_counts_as_waiting(waiting) for waiting in draft.wait_queue)
    return waiting_count >= draft.limits.max_waiting or len(draft.wait_queue) >= MAX_WAITING_RUNS


def catch_up_room(draft: Draft) -> int:
    """Return how many missed occurrences RUN_ALL may still add to the wait queue."""
    waiting_count = sum(waiting.is_caught_up for waiting in draft.wait_queue)
    return max(0, min(MAX_CAUGHT_UP_RUNS - waiting_count, MAX_WAITING_RUNS - len(draft.wait_queue)))


def _counts_as_waiting(waiting: WaitingRun) -> bool:
    return waiting.trigger is Trigger.SCHEDULE and not waiting.is_caught_up


def _cancel_oldest(draft: Draft) -> None:
    """Cancel the oldest scheduled runs, live before waiting, until one more fits.

    That is one run, or more if the limit was lowered.
    """
    active_runs = [run for run in draft.runs if not run.cancel_reason]
    waiting_runs = [waiting for waiting in draft.wait_queue if _counts_as_waiting(waiting)]
    excess = len(active_runs) + len(waiting_runs) + 1 - draft.limits.max_concurrency
    oldest_runs = [run for run in active_runs if run.trigger is Trigger.SCHEDULE][: max(0, excess)]
    for run in oldest_runs:
        cancel_run(draft, run, Reason.REPLACED)
    for waiting in waiting_runs[: max(0, excess - len(oldest_runs))]:
        draft.wait_queue.remove(waiting)
        end_waiting_run(draft, waiting, RunStatus.CANCELLED, Reason.REPLACED)


def has_room(draft: Draft) -> bool:
    return len(draft.runs) < draft.limits.max_concurrency


def _may_start(draft: Draft, waiting: WaitingRun) -> bool:
    """Return whether the run may start. A pause holds scheduled runs, never requested runs."""
    return draft.status is not JobStatus.PAUSED or waiting.trigger is not Trigger.SCHEDULE


def admit(draft: Draft) -> None:
    """Queue runs for the free places: begun runs first, then runs of the wait queue."""
    for run in list(draft.runs):
        if run.reason is Reason.CONCURRENCY and _active_count(draft) < draft.limits.max_concurrency:
            requeue(draft, run)
    while draft.wait_queue and has_room(draft):
        for index, waiting in enumerate(draft.wait_queue):
            if _may_start(draft, waiting):
                del draft.wait_queue[index]
                queue_run(
                    draft, waiting, admitted_at=draft.now if draft.now > waiting.due_at else None
                )
                break
        else:
            return


def _active_count(draft: Draft) -> int:
    return sum(run.is_held or run.status is RunStatus.QUEUED for run in draft.runs)


def refuse_claim(draft: Draft, run: Run) -> None:
    """Make a queued run wait after the limit was lowered. A begun run stays in `runs`."""
    if run.has_begun:
        draft.put_run(
            replace(run, status=RunStatus.WAITING, reason=Reason.CONCURRENCY, changed_at=draft.now)
        )
    else:
        requeue_front(draft, [run])


def queue_run(draft: Draft, waiting: WaitingRun, admitted_at: datetime | None = None) -> None:
    run = from_waiting(
        waiting,
        RunStatus.QUEUED,
        draft.now,
        sent_at=max(draft.now, waiting.due_at),
        send_count=1,
        admitted_at=admitted_at,
    )
    draft.runs.append(run)
    draft.runs_to_send.append(run)
    if draft.original.latest_run_id != waiting.run_id:
        draft.latest_run_id = waiting.run_id


def end_past_deadline(draft: Draft) -> None:
    """End the runs that did not start by their deadline."""
    for run in list(draft.runs):
        end_if_past_deadline(draft, run)
    for waiting in list(draft.wait_queue):
        deadline_at = draft.deadline_of(waiting)
        if deadline_at is not None and deadline_at <= draft.now:
            draft.wait_queue.remove(waiting)
            end_waiting_run(draft, waiting, RunStatus.MISSED, Reason.DEADLINE)


def end_if_past_deadline(draft: Draft, run: Run) -> bool:
    """End a run that did not start by its deadline. A returned claim is no start."""
    deadline_at = draft.deadline_of(run)
    if not run.can_miss_deadline or deadline_at is None or deadline_at > draft.now:
        return False
    end_run(draft, replace(run, started_at=None), RunStatus.MISSED, Reason.DEADLINE)
    return True


def unclaimed_runs(draft: Draft) -> list[Run]:
    return [run for run in draft.runs if run.status is RunStatus.QUEUED and not run.has_begun]


def runs_fired_ahead(draft: Draft) -> list[Run]:
    """Return the unclaimed runs that were fired ahead of their due time."""
    return [
        run
        for run in unclaimed_runs(draft)
        if run.trigger is Trigger.SCHEDULE and run.due_at > draft.now
    ]


def take_back_fired_ahead(draft: Draft) -> None:
    """Take back the unclaimed runs that were fired ahead. They leave no outcome."""
    early_runs = runs_fired_ahead(draft)
    if not early_runs:
        return
    first_at = min(run.scheduled_at for run in early_runs)
    for run in early_runs:
        draft.remove_run(run.run_id)
        draft.runs_to_send = [
            queued for queued in draft.runs_to_send if queued.run_id != run.run_id
        ]
        draft.unset_latest(run.run_id)
    draft.planned_until = _planned_until_before(draft, first_at)
    draft.next_at = first_at


def _planned_until_before(draft: Draft, first_at: datetime) -> datetime:
    """Return the time up to which all occurrences are settled.

    This is now, or the last occurrence that was fired ahead and has ended.
    """
    last_at = min(draft.now, first_at - MICROSECOND)
    if draft.schedule is not None:
        for at in occurrences(draft.schedule, draft.now, first_at - MICROSECOND):
            last_at = at
    return last_at


def requeue_front(draft: Draft, runs: Iterable[Run]) -> None:
    """Return unclaimed queued runs to the front of the wait queue, in order."""
    returned = list(runs)
    for run in returned:
        draft.remove_run(run.run_id)
        draft.runs_to_send = [
            queued for queued in draft.runs_to_send if queued.run_id != run.run_id
        ]
    draft.wait_queue[:0] = [to_waiting(run) for run in returned]


def queue_after_backoff(draft: Draft) -> None:
    """Queue the next attempt of each run after its backoff or its wait for resources."""
    for run in list(draft.runs):
        if run.next_at is None or run.reason not in TIMED_WAIT_REASONS:
            continue
        if run.next_at <= draft.now:
            queued_run = replace(
                run,
                status=RunStatus.QUEUED,
                reason=Reason.NONE,
                next_at=None,
                changed_at=draft.now,
                sent_at=draft.now,
                send_count=1,
                queued_again_at=draft.now,
            )
            draft.put_run(queued_run)
            draft.runs_to_send.append(queued_run)


def resend_at(run: Run) -> datetime:
    """Return when a queued run is sent again: its message is then assumed to be lost."""
    factor: int = 2 ** max(0, run.send_count - 1)
    wait = min(RESEND_DELAY * factor, MAX_RESEND_DELAY)
    return (run.sent_at or run.due_at) + wait


def resend_unclaimed(draft: Draft) -> None:
    """Send queued runs again that no executor claimed in time. Their messages may be lost."""
    for run in list(draft.runs):
        if run.status is not RunStatus.QUEUED or run.sent_at is None:
            continue
        if draft.now >= resend_at(run):
            resent_run = replace(
                run, sent_at=draft.now, send_count=min(run.send_count + 1, 6), changed_at=draft.now
            )
            draft.put_run(resent_run)
            draft.runs_to_send.append(resent_run)
