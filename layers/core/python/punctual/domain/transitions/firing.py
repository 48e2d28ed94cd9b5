"""Fire occurrences: each due occurrence becomes a queued or waiting run, or an outcome."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import CatchUp, JobStatus, MisfirePolicy, OverlapPolicy
from punctual.domain.run import NOT_RUN_STATUSES, Reason, Run, RunStatus, WaitingRun
from punctual.domain.schedules.schedule import next_after, occurrences
from punctual.domain.schedules.values import counts_from_completion
from punctual.domain.transitions.attempts import (
    has_scheduled_run,
    is_max_runs_reached,
    set_next_after_completion,
)
from punctual.domain.transitions.wait_queue import (
    MAX_CAUGHT_UP_RUNS,
    Refusal,
    admit,
    catch_up_room,
    end_past_deadline,
    has_room,
    offer,
    runs_fired_ahead,
)


class OccurrenceRange(NamedTuple):
    """Consecutive occurrences: the first, the last, and their number."""

    first: datetime
    last: datetime
    occurrence_count: int

    @classmethod
    def from_times(cls, times: Sequence[datetime]) -> "OccurrenceRange":
        return cls(times[0], times[-1], len(times))


MAX_OCCURRENCES_PER_DECISION = 2_000  # so that no decision takes long


def process_due(draft: Draft, fire_ahead_until: datetime | None = None) -> None:
    """Process each due occurrence by the definition in force, and fill free places."""
    if not draft.runs and not draft.wait_queue and draft.next_at is None and draft.catch_up is None:
        return
    end_past_deadline(draft)
    admit(draft)
    if draft.status is JobStatus.SCHEDULED:
        _detect_outage(draft)
        if draft.catch_up is not None:
            _catch_up(draft)
            _detect_outage(draft)  # another outage can follow the settled one
        if draft.catch_up is None:
            _fire_due(draft)
            admit(draft)
            _fire_ahead(draft, fire_ahead_until)
    admit(draft)


def _detect_outage(draft: Draft) -> None:
    grace_start_at = draft.now - draft.limits.grace
    if draft.catch_up is not None and not draft.catch_up.after_pause:
        draft.catch_up = replace(draft.catch_up, until=max(draft.catch_up.until, grace_start_at))
    elif (
        draft.catch_up is None
        and draft.next_at is not None
        and draft.next_at + draft.jitter < grace_start_at
    ):
        draft.catch_up = CatchUp(until=grace_start_at, policy=draft.limits.misfire)


def _due_times(draft: Draft, until: datetime) -> list[datetime]:
    """Return the next occurrences with a due time up to `until`, as many as one decision takes."""
    last_at = until - draft.jitter
    if draft.next_at is None or draft.next_at > last_at:
        return []
    if counts_from_completion(draft.schedule):
        return [draft.next_at]
    assert draft.schedule is not None
    following = islice(
        occurrences(draft.schedule, draft.next_at, last_at), MAX_OCCURRENCES_PER_DECISION - 1
    )
    return [draft.next_at, *following]


def _advance(draft: Draft, last_at: datetime) -> None:
    """Continue after `last_at`. An interval from completion gets its next time from an outcome."""
    draft.planned_until = last_at
    if draft.schedule is None or counts_from_completion(draft.schedule):
        draft.next_at = None
    else:
        draft.next_at = next_after(draft.schedule, last_at)


def _catch_up(draft: Draft) -> None:
    catch_up = draft.catch_up
    assert catch_up is not None
    missed_times = _due_times(draft, catch_up.until)
    if not missed_times:
        draft.catch_up = None
        return
    previous_until = draft.planned_until
    next_at = (
        None
        if counts_from_completion(draft.schedule)
        else next_after_or_none(draft, missed_times[-1])
    )
    has_more = next_at is not None and next_at + draft.jitter <= catch_up.until
    skipped_times, run_times = _split_missed(
        catch_up.policy, missed_times, has_more, catch_up_room(draft)
    )
    if skipped_times:
        _advance(draft, skipped_times[-1])
        record_not_run(
            draft,
            OccurrenceRange.from_times(skipped_times),
            *_missed_outcome(catch_up),
            previous_until,
        )
    if run_times:
        _advance(draft, run_times[-1])
    fire(draft, run_times, caught_up=catch_up.policy is MisfirePolicy.RUN_ALL)
    if not has_more:
        draft.catch_up = None


def next_after_or_none(draft: Draft, at: datetime) -> datetime | None:
    return None if draft.schedule is None else next_after(draft.schedule, at)


def _split_missed(
    policy: MisfirePolicy, missed_times: list[datetime], has_more: bool, limit: int
) -> tuple[list[datetime], list[datetime]]:
    """Return the missed occurrences that do not run, and those that do.

    With `has_more`, the latest occurrences are not known yet.
    """
    if policy is MisfirePolicy.SKIP:
        return missed_times, []
    if policy is MisfirePolicy.RUN_ONCE:
        return (missed_times, []) if has_more else (missed_times[:-1], missed_times[-1:])
    if has_more:
        return missed_times[:-MAX_CAUGHT_UP_RUNS], []
    split = max(0, len(missed_times) - limit)
    return missed_times[:split], missed_times[split:]


def _missed_outcome(catch_up: CatchUp) -> tuple[RunStatus, Reason]:
    if catch_up.policy is MisfirePolicy.RUN_ONCE:
        return RunStatus.SKIPPED, Reason.COALESCED
    if catch_up.after_pause and catch_up.policy is MisfirePolicy.SKIP:
        return RunStatus.SKIPPED, Reason.PAUSED
    return RunStatus.MISSED, Reason.OUTAGE


def record_not_run(
    draft: Draft,
    occurrence_range: OccurrenceRange,
    status: RunStatus,
    reason: Reason,
    previous_until: datetime | None = None,
) -> None:
    """Record occurrences that never became runs, as one entry.

    The decisions of one catch-up extend the same entry.
    """
    for index, entry in enumerate(draft.unrecorded if draft.original.catch_up is not None else ()):
        if draft.is_growing(entry) and entry.reason is reason and previous_until == entry.last_at:
            count = entry.occurrence_count + occurrence_range.occurrence_count
            draft.unrecorded[index] = replace(
                entry, occurrence_count=count, last_at=occurrence_range.last, changed_at=draft.now
            )
            return
    first_at = occurrence_range.first
    run_id = occurrence_id(draft.original.job_id, first_at)
    if status in NOT_RUN_STATUSES:
        draft.latest_not_run_id = run_id
    draft.unrecorded.append(
        Run(
            run_id=run_id,
            status=status,
            definition=draft.definition,
            scheduled_at=first_at,
            due_at=first_at + draft.jitter,
            created_at=draft.now,
            changed_at=draft.now,
            reason=reason,
            ended_at=draft.now,
            occurrence_count=occurrence_range.occurrence_count,
            last_at=occurrence_range.last if occurrence_range.occurrence_count > 1 else None,
        )
    )
    set_next_after_completion(draft, draft.now)


def _fire_due(draft: Draft) -> None:
    if draft.next_at is None or draft.next_at + draft.jitter > draft.now:
        return
    times = _due_times(draft, draft.now)
    _advance(draft, times[-1])
    if draft.limits.overlap is OverlapPolicy.REPLACE and len(times) > draft.limits.max_concurrency:
        replaced = OccurrenceRange.from_times(times[: -draft.limits.max_concurrency])
        record_not_run(draft, replaced, RunStatus.CANCELLED, Reason.REPLACED)
        times = times[-draft.limits.max_concurrency :]
    fire(draft, times)


def _fire_ahead(draft: Draft, fire_ahead_until: datetime | None) -> None:
    """Queue the next occurrence ahead of its time, unless another run could block it.

    At most one run is queued ahead. If the second of two were cancelled and the first then taken
    back, `next_at` would return to the first. The second would fire again although it has an
    outcome.
    """
    if (
        fire_ahead_until is not None
        and draft.next_at is not None
        and draft.next_at + draft.jitter <= fire_ahead_until
        and not draft.wait_queue
        and has_room(draft)
        and not runs_fired_ahead(draft)
    ):
        scheduled_at = draft.next_at
        _advance(draft, scheduled_at)
        fire(draft, [scheduled_at])


def fire(draft: Draft, times: list[datetime], caught_up: bool = False) -> None:
    """Offer a run for each time. Consecutive refusals for one reason become one entry."""
    refused_times: list[datetime] = []
    last_refusal: Refusal | None = None
    for scheduled_at in times:
        if is_max_runs_reached(draft):
            break
        refusal = offer(draft, _new_waiting_run(draft, scheduled_at, caught_up))
        if last_refusal is not None and refusal != last_refusal:
            record_not_run(draft, OccurrenceRange.from_times(refused_times), *last_refusal)
            refused_times = []
        if refusal is not None:
            refused_times.append(scheduled_at)
        last_refusal = refusal
    if last_refusal is not None:
        record_not_run(draft, OccurrenceRange.from_times(refused_times), *last_refusal)
    if counts_from_completion(draft.schedule) and has_scheduled_run(draft):
        draft.next_at = None


def _new_waiting_run(draft: Draft, scheduled_at: datetime, caught_up: bool) -> WaitingRun:
    return WaitingRun(
        run_id=occurrence_id(draft.original.job_id, scheduled_at),
        definition=draft.definition,
        scheduled_at=scheduled_at,
        due_at=scheduled_at + draft.jitter,
        created_at=draft.now,
        is_caught_up=caught_up,
    )
