"""Fire occurrences: each due occurrence becomes a queued or waiting run, or an outcome."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import CatchUp, JobStatus, Misfire, Overlap
from punctual.domain.run import NOT_RUN, Reason, Run, RunStatus, WaitingRun
from punctual.domain.schedules.schedule import Every, next_after, occurrences
from punctual.domain.transitions.attempts import (
    count_from_completion,
    is_one_alive,
    runs_are_used_up,
)
from punctual.domain.transitions.wait_queue import (
    ALL_MISSED,
    Refusal,
    admit,
    ahead,
    expire,
    has_room,
    offer,
    room_to_catch_up,
)


class Stretch(NamedTuple):
    """Consecutive occurrences, of which only the ends and the number are kept."""

    first: datetime
    last: datetime
    number: int

    @classmethod
    def of(cls, times: Sequence[datetime]) -> "Stretch":
        return cls(times[0], times[-1], len(times))


CHUNK = 2_000  # most occurrences in one decision, so that none takes long


def settle(d: Draft, horizon: datetime | None = None) -> None:
    """Process each due occurrence by the definition in force, and fill free places."""
    if not d.runs and not d.line and d.next_at is None and d.behind is None:
        return
    expire(d)
    admit(d)
    if d.state is JobStatus.SCHEDULED:
        _notice_outage(d)
        if d.behind is not None:
            _catch_up(d)
            _notice_outage(d)  # another outage can follow the settled one
        if d.behind is None:
            _fire_due(d)
            admit(d)
            _fire_ahead(d, horizon)
    admit(d)


def _notice_outage(d: Draft) -> None:
    overdue = d.now - d.limits.grace
    if d.behind is not None and not d.behind.paused:
        d.behind = replace(d.behind, until=max(d.behind.until, overdue))
    elif d.behind is None and d.next_at is not None and d.next_at + d.jitter < overdue:
        d.behind = CatchUp(until=overdue, policy=d.limits.misfire)


def _due(d: Draft, until: datetime) -> list[datetime]:
    """Return the next occurrences with a due time up to `until`, at most `CHUNK` of them."""
    last = until - d.jitter
    if d.next_at is None or d.next_at > last:
        return []
    if counts_from_completion(d):
        return [d.next_at]
    assert d.schedule is not None
    more = islice(occurrences(d.schedule, d.next_at, last), CHUNK - 1)
    return [d.next_at, *more]


def counts_from_completion(d: Draft) -> bool:
    return isinstance(d.schedule, Every) and d.schedule.from_completion


def _advance(d: Draft, last: datetime) -> None:
    """Continue after `last`. An interval from completion gets its next time from an outcome."""
    d.mark = last
    if d.schedule is None or counts_from_completion(d):
        d.next_at = None
    else:
        d.next_at = next_after(d.schedule, last)


def _catch_up(d: Draft) -> None:
    behind = d.behind
    assert behind is not None
    missed = _due(d, behind.until)
    if not missed:
        d.behind = None
        return
    before = d.mark
    following = None if counts_from_completion(d) else next_after_or_none(d, missed[-1])
    more = following is not None and following + d.jitter <= behind.until
    not_run, run = _judge(behind.policy, missed, more, room_to_catch_up(d))
    if not_run:
        _advance(d, not_run[-1])
        skip_many(d, Stretch.of(not_run), *_verdict(behind), before)
    if run:
        _advance(d, run[-1])
    fire(d, run, caught_up=behind.policy is Misfire.RUN_ALL)
    if not more:
        d.behind = None


def next_after_or_none(d: Draft, at: datetime) -> datetime | None:
    return None if d.schedule is None else next_after(d.schedule, at)


def _judge(
    policy: Misfire, missed: list[datetime], more: bool, most: int
) -> tuple[list[datetime], list[datetime]]:
    """Return the missed occurrences that do not run, and those that do.

    While `more` follow, the latest occurrences are not known yet.
    """
    if policy is Misfire.SKIP:
        return missed, []
    if policy is Misfire.RUN_ONCE:
        return (missed, []) if more else (missed[:-1], missed[-1:])
    if more:
        return missed[:-ALL_MISSED], []
    split = max(0, len(missed) - most)
    return missed[:split], missed[split:]


def _verdict(behind: CatchUp) -> tuple[RunStatus, Reason]:
    if behind.policy is Misfire.RUN_ONCE:
        return RunStatus.SKIPPED, Reason.COALESCED
    if behind.paused and behind.policy is Misfire.SKIP:
        return RunStatus.SKIPPED, Reason.PAUSED
    return RunStatus.MISSED, Reason.OUTAGE


def skip_many(
    d: Draft,
    times: Stretch,
    status: RunStatus,
    reason: Reason,
    before: datetime | None = None,
) -> None:
    """Record occurrences that never became runs, as one entry.

    The decisions of one catch-up extend the same entry.
    """
    for index, entry in enumerate(d.ended if d.head.behind is not None else ()):
        if d.is_growing(entry) and entry.reason is reason and before == entry.last_at:
            count = entry.count + times.number
            d.ended[index] = replace(entry, count=count, last_at=times.last, changed_at=d.now)
            return
    first = times.first
    run_id = occurrence_id(d.head.job_id, first)
    if status in NOT_RUN:
        d.latest_not_run = run_id
    d.ended.append(
        Run(
            run_id=run_id,
            status=status,
            definition=d.definition,
            scheduled_at=first,
            due_at=first + d.jitter,
            created_at=d.now,
            changed_at=d.now,
            reason=reason,
            ended_at=d.now,
            count=times.number,
            last_at=times.last if times.number > 1 else None,
        )
    )
    count_from_completion(d, d.now)


def _fire_due(d: Draft) -> None:
    if d.next_at is None or d.next_at + d.jitter > d.now:
        return
    times = _due(d, d.now)
    _advance(d, times[-1])
    if d.limits.overlap is Overlap.REPLACE and len(times) > d.limits.max_concurrency:
        replaced = Stretch.of(times[: -d.limits.max_concurrency])
        skip_many(d, replaced, RunStatus.CANCELLED, Reason.REPLACED)
        times = times[-d.limits.max_concurrency :]
    fire(d, times)


def _fire_ahead(d: Draft, horizon: datetime | None) -> None:
    """Queue the next occurrence ahead of its time, unless another run could block it.

    Only one run is ahead at a time. With two, the later could be cancelled and the earlier taken
    back. Then the later occurrence would have an outcome and still be due.
    """
    if (
        horizon is not None
        and d.next_at is not None
        and d.next_at + d.jitter <= horizon
        and not d.line
        and has_room(d)
        and not ahead(d)
    ):
        at = d.next_at
        _advance(d, at)
        fire(d, [at])


def fire(d: Draft, times: list[datetime], caught_up: bool = False) -> None:
    """Offer a run for each time. Consecutive refusals for one reason become one entry."""
    refused: list[datetime] = []
    refusal: Refusal | None = None
    for at in times:
        if runs_are_used_up(d):
            break
        answer = offer(d, _occurrence(d, at, caught_up))
        if refusal is not None and answer != refusal:
            skip_many(d, Stretch.of(refused), *refusal)
            refused = []
        if answer is not None:
            refused.append(at)
        refusal = answer
    if refusal is not None:
        skip_many(d, Stretch.of(refused), *refusal)
    if counts_from_completion(d) and is_one_alive(d):
        d.next_at = None


def _occurrence(d: Draft, at: datetime, caught_up: bool) -> WaitingRun:
    return WaitingRun(
        run_id=occurrence_id(d.head.job_id, at),
        definition=d.definition,
        scheduled_at=at,
        due_at=at + d.jitter,
        created_at=d.now,
        caught_up=caught_up,
    )
