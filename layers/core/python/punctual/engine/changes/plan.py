"""A planned change: the state that was read, the decision, and the timers that go with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.decide import Decision
from punctual.domain.draft import WRITERS
from punctual.domain.errors import LaterVersion, Unavailable, Unreadable
from punctual.domain.events import Backfill, Claim, Evaluate, Event, Finish, StartRun
from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.engine.changes.change import Change
from punctual.engine.commands.audit import of_change
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState, Swap
from punctual.engine.ports.rows import Key, RunKey
from punctual.engine.ports.timers import Timer

MANY_ENDED = 8  # up to this number a claim or finish rewrites history rows without a check
LONG_ENDED = timedelta(hours=1)  # older history rows are not rewritten without a check


class PlannedChange(Struct, frozen=True):
    number: int
    change: Change
    stored: StoredState | None
    decision: Decision
    timers: Sequence[Timer]
    safety: Sequence[Timer]

    @property
    def swap(self) -> Swap:
        decision, note = self.decision, self.change.note
        old = None if self.stored is None else self.stored.head
        if note is not None:
            note = of_change(note, old, decision.head)
        expect = 0 if old is None else old.version
        return Swap(decision.head, expect, decision.leases, decision.required, note)


def load(
    heads: JobStates, keys: Sequence[Key]
) -> tuple[Mapping[Key, StoredState], Mapping[Key, Exception]]:
    """Load the states of these jobs, and the error of each that cannot be read.

    An unreadable row fails only its own job. The batch is halved until that row stands alone.
    """
    try:
        return heads.load(keys), {}
    except Exception as error:
        if isinstance(error, Unavailable) and not isinstance(error, LaterVersion | Unreadable):
            raise
        if len(keys) == 1:
            return {}, {keys[0]: error}
    half = len(keys) // 2
    found, unread = load(heads, keys[:half])
    more, others = load(heads, keys[half:])
    return {**found, **more}, {**unread, **others}


def handled(plan: PlannedChange, now: datetime) -> Sequence[Timer]:
    """Return the timers of this change that are consumed.

    A timer that is not due yet is consumed only if the state relied on it. Other timers stay, for
    example one that secures the effects of an API call.
    """
    brought = plan.change.brought
    if not brought:
        return ()
    stored, wanted = plan.stored, plan.decision.head.timer_at
    carried = None if stored is None else stored.head.timer_at
    return [
        timer
        for timer in brought
        if timer.at != wanted
        and (timer.at <= now or timer.at == carried or stored is None)
        and timer not in plan.timers
    ]


def one_a_job(pending: Sequence[int], changes: Sequence[Change]) -> tuple[list[int], list[int]]:
    """Split the changes into the first of each job and the rest."""
    seen: set[Key] = set()
    first, later = [], []
    for index in pending:
        if changes[index].key in seen:
            later.append(index)
        else:
            seen.add(changes[index].key)
            first.append(index)
    return first, later


def reach(decision: Decision, version: int, writer: str) -> Decision:
    """Raise the version to that of a timer, so that the slow writer of that version loses."""
    head = decision.head
    writers = head.writers if decision.changed else (*head.writers[1 - WRITERS :], writer)
    return replace(decision, head=replace(head, version=version, writers=writers), changed=True)


def recorded(
    history: History, changes: Sequence[Change], stored: Mapping[Key, StoredState], now: datetime
) -> Mapping[Key, frozenset[str]]:
    """Return the ids of the ended runs that have their history row, by job.

    The check covers ended runs in the state, and ids of runs that a request would make.
    """
    wanted: dict[RunKey, Run] = {}
    for change in changes:
        found = stored.get(change.key)
        if found is None or not found.head.ended:
            continue
        many = len(found.head.ended) > MANY_ENDED
        if many or not _is_hurried(change.event, found.head, now):
            wanted.update((RunKey(*change.key, run.run_id), run) for run in found.head.ended)
    single = [key for key, run in wanted.items() if run.count == 1] + _ordered_before(changes)
    grouped = [key for key, run in wanted.items() if run.count > 1]
    standing = list(history.present(single)) if single else []
    rows = history.get(grouped, now) if grouped else {}
    # An entry for many occurrences may have grown since its row was written.
    standing += [key for key, row in rows.items() if row.run.count == wanted[key].count]
    by_key: dict[Key, set[str]] = {}
    for tenant, job_id, run_id in standing:
        by_key.setdefault(Key(tenant, job_id), set()).add(run_id)
    return {key: frozenset(ids) for key, ids in by_key.items()}


def _is_hurried(event: Event, head: JobState, now: datetime) -> bool:
    """Return True if the history rows may be rewritten without an existence check.

    A job with notifications needs the check, because each write of a row notifies again.
    """
    if head.notify or not isinstance(event, Claim | Finish):
        return False
    since = now - LONG_ENDED
    return all((run.ended_at or run.changed_at) >= since for run in head.ended)


def _ordered_before(changes: Sequence[Change]) -> list[RunKey]:
    """Return the runs that an earlier copy of the same request may have started.

    The run may have ended and left the job state already.
    """
    found: list[RunKey] = []
    for change in changes:
        event = change.event
        if isinstance(event, StartRun) and event.keyed:
            found.append(RunKey(*change.key, event.run_id))
        elif isinstance(event, Backfill):
            found += [RunKey(*change.key, run_id) for run_id, _ in event.runs]
    return found


def not_again(event: Event, on_record: frozenset[str], stored: StoredState) -> Event:
    """Return the event without runs that have a history row. Rows are read after the state."""
    if isinstance(event, StartRun) and event.run_id in on_record:
        return Evaluate(leases=stored.leases)
    if isinstance(event, Backfill) and on_record:
        return Backfill(tuple(run for run in event.runs if run[0] not in on_record))
    return event
