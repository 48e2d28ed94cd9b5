"""One change on its way: what was read, what was decided, and which timers go with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.decide import Decision
from punctual.domain.draft import WRITERS
from punctual.domain.errors import LaterVersion, Unavailable, Unreadable
from punctual.domain.events import Backfill, Claim, Evaluate, Event, Finish, StartRun
from punctual.domain.job_state import JobState
from punctual.domain.run import LOST, Run
from punctual.engine.changes.change import Change
from punctual.engine.commands.audit import of_change
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState, Swap
from punctual.engine.ports.rows import Key, RunKey
from punctual.engine.ports.timers import Timer

MANY_ENDED = 8  # a claim or a finish does not ask which history rows stand, up to here
LONG_ENDED = timedelta(hours=1)  # and none that ended so long ago is written without asking


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


def stood(known: Mapping[Key, JobState] | None) -> Mapping[Key, StoredState] | None:
    """Heads that somebody tells as if they had been read."""
    return {key: StoredState(head, {}) for key, head in known.items()} if known else None


def load(
    heads: JobStates,
    keys: Sequence[Key],
    known: Mapping[Key, StoredState] | None = None,
    glance: bool = False,
) -> tuple[Mapping[Key, StoredState], Mapping[Key, Exception]]:
    """What stands; and what nobody can read, which keeps no other from being looked at."""
    if known:
        left = [key for key in keys if key not in known]
        read, unread = load(heads, left, None, glance) if left else ({}, {})
        return {**read, **known}, unread
    try:
        return heads.load(keys, glance), {}
    except Exception as error:
        if isinstance(error, Unavailable) and not isinstance(error, LaterVersion | Unreadable):
            raise
        if len(keys) == 1:
            return {}, {keys[0]: error}
    half = len(keys) // 2
    found, unread = load(heads, keys[:half], None, glance)
    more, others = load(heads, keys[half:], None, glance)
    return {**found, **more}, {**unread, **others}


def is_proved(plan: PlannedChange | None) -> bool:
    """Whether the swap alone says if this was decided on what stands.

    Nothing comes of such a decision before its swap but timers, which are looks too many at worst.
    Another would be trusted unproved: that there is nothing to do, or no such job, or that a
    holder is gone, of which a row tells before the swap. And who is brought by a timer of a
    version that is not to be seen has most likely seen something old. What a claim begins with,
    a message told: had somebody made that up, a timer of its version would be taken for true; and
    a swap of version 0 would make a job, for it only asks that there is none.
    """
    if plan is None or plan.stored is None or not plan.decision.changed:
        return False
    if plan.timers and isinstance(plan.change.event, Claim):
        return False
    version = plan.stored.head.version
    return version > 0 and not (
        any(timer.version > version for timer in plan.change.brought)
        or any(letter == LOST for _, letter in plan.decision.attempts)
    )


def handled(plan: PlannedChange, now: datetime) -> Sequence[Timer]:
    """The timers that brought this and are done with.

    What came ahead of its time is done with only if it carried the head's next look, and that was
    taken. Others, such as those that stand in for an API call's effects, have their time to come.
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
    """Take a version that a slow writer put a timer for: it loses, and decides again."""
    head = decision.head
    writers = head.writers if decision.changed else (*head.writers[1 - WRITERS :], writer)
    return replace(decision, head=replace(head, version=version, writers=writers), changed=True)


def recorded(
    history: History, changes: Sequence[Change], stored: Mapping[Key, StoredState], now: datetime
) -> Mapping[Key, frozenset[str]]:
    """Which ended runs have their row, asked where they are to leave the head, or to be made.

    One alone is glanced at: it ended some time ago, and if its row is not to be seen yet, it is
    written again and stays a while. Of several, none stays for having been overlooked.
    """
    wanted: dict[RunKey, Run] = {}
    alone: list[RunKey] = []
    for change in changes:
        found = stored.get(change.key)
        if found is None or not found.head.ended:
            continue
        hurried = _is_hurried(change.event, found.head, now)
        if not hurried and len(found.head.ended) == 1 and found.head.ended[0].count == 1:
            alone.append(RunKey(*change.key, found.head.ended[0].run_id))
        elif not hurried or len(found.head.ended) > MANY_ENDED:
            wanted.update((RunKey(*change.key, run.run_id), run) for run in found.head.ended)
    single = [key for key, run in wanted.items() if run.count == 1] + _ordered_before(changes)
    many = [key for key, run in wanted.items() if run.count > 1]
    standing = list(history.present(alone, glance=True)) if alone else []
    standing += history.present(single) if single else ()
    rows = history.get(many, now) if many else {}
    # An entry for many may have grown since its row was written.
    standing += [key for key, row in rows.items() if row.run.count == wanted[key].count]
    by_key: dict[Key, set[str]] = {}
    for tenant, job_id, run_id in standing:
        by_key.setdefault(Key(tenant, job_id), set()).add(run_id)
    return {key: frozenset(ids) for key, ids in by_key.items()}


def _is_hurried(event: Event, head: JobState, now: datetime) -> bool:
    """Who may write a row once more without asking, for what it is made of surely stands still.

    With the row, whom to tell would be told once more.
    """
    if head.notify or not isinstance(event, Claim | Finish):
        return False
    since = now - LONG_ENDED
    return all((run.ended_at or run.changed_at) >= since for run in head.ended)


def _ordered_before(changes: Sequence[Change]) -> list[RunKey]:
    """The runs that are ordered by ids which a twin of the request may have used.

    It may have been so fast, or this one so slow, that such a run has left its head again.
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
    """Without what is on record, which was asked after the head was read: it has been."""
    if isinstance(event, StartRun) and event.run_id in on_record:
        return Evaluate(leases=stored.leases)
    if isinstance(event, Backfill) and on_record:
        return Backfill(tuple(run for run in event.runs if run[0] not in on_record))
    return event
