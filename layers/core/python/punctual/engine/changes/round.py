"""One round of changes, decided with one reading of the clock.

The steps are timer, job state, effects, and last the trigger. A crash after any step leaves the
trigger in place, and the next evaluation ends in the same state.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from msgspec.structs import replace

from punctual.domain.decide import Decision, Verdict, decide
from punctual.domain.durations import LEASE, SAFETY
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.domain.events import Claim, Evaluate, Event, Finish
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run, RunStatus
from punctual.domain.transitions.wait_queue import resend_at
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.effects import Effects
from punctual.engine.changes.plan import PlannedChange, handled, load, not_again, reach, recorded
from punctual.engine.changes.timer_placement import TimerPlacement, TimerPuts, blank_head
from punctual.engine.clock import ClockReading
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps

_NONE: frozenset[str] = frozenset()


class Round:
    """Applies changes in four steps, which all take the time from the argument `begun`."""

    def __init__(
        self,
        *,
        heads: JobStates,
        timers: Timers,
        history: History,
        wake: WakeUps,
        placing: TimerPlacement,
        timer_puts: TimerPuts,
        effects: Effects,
        log: Log,
        unit: AbstractContextManager[None] | None,
        alive: Callable[[Run], bool] | None,
    ) -> None:
        self._heads = heads
        self._timers = timers
        self._history = history
        self._wake = wake
        self._placing = placing
        self._timer_puts = timer_puts
        self._effects = effects
        self._log = log
        self._alive = alive
        self._unit = nullcontext() if unit is None else unit
        self._together = unit is not None

    def create(self, begun: ClockReading, new: Sequence[tuple[Change, JobState]]) -> list[Result]:
        now = begun.wall
        plans = []
        for number, (change, base) in enumerate(new):
            decision = decide(base, change.event, now, change.writer, _NONE, self._together)
            stored = StoredState(base, {})
            plans.append(self._finished(number, change, stored, decision, change.event, now))
        results: list[Result | None] = [None] * len(plans)
        self._carry_out(plans, begun, results)
        return [result or Result(None) for result in results]

    def apply(
        self,
        begun: ClockReading,
        indexes: Sequence[int],
        changes: Sequence[Change],
        results: list[Result | None],
    ) -> list[int]:
        """Decide and write each change. Return the numbers of the changes that lost."""
        keys = [changes[index].key for index in indexes]
        stored, unread = load(self._heads, keys)
        chosen = [changes[index] for index in indexes]
        on_record = recorded(self._history, chosen, stored, begun.wall)
        plans: list[PlannedChange] = []
        for index in indexes:
            change = changes[index]
            try:
                if change.key in unread:
                    raise unread[change.key]
                plan = self._plan(index, change, stored.get(change.key), on_record, begun.wall)
            except Exception as error:
                if not (change.brought or change.spared):
                    raise
                self._log("look_failed", job_id=change.key.job_id, error=type(error).__name__)
                later = isinstance(error, LaterVersion)
                results[index] = Result(None, effects_done=False, failed=True, later=later)
                continue
            if plan is None:
                results[index] = Result(None)
            else:
                plans.append(plan)
        return self._carry_out(plans, begun, results)

    def _carry_out(
        self, plans: Sequence[PlannedChange], begun: ClockReading, results: list[Result | None]
    ) -> list[int]:
        """Carry out the four steps. Return the numbers of the changes that lost their swap."""
        put = [timer for plan in plans for timer in (*plan.timers, *plan.safety)]
        with self._unit:
            stand = self._timer_puts.put(put, begun) if put else put
            late = () if stand is put else stand
            self._effects.write_attempts(plans, begun.wall)
            lost = self._swap(plans)
            won = [p for p in plans if p.number not in lost] if lost else plans
            self._follow(won, begun.wall, results, late)
        return lost

    def _plan(
        self,
        number: int,
        change: Change,
        stored: StoredState | None,
        on_record: Mapping[Key, frozenset[str]],
        now: datetime,
    ) -> PlannedChange | None:
        reached = max((timer.version for timer in change.brought), default=0)
        if stored is None:
            if not reached:
                return None
            held = blank_head(change.key, reached, change.writer, now)
            return PlannedChange(number, change, None, Decision(head=held, changed=True), (), ())
        head = stored.head
        event = change.event
        if self._alive is not None and not isinstance(event, Claim | Finish):
            stored = _with_living(stored, self._alive, now)
        if isinstance(event, Evaluate):
            event = replace(
                event,
                leases=stored.leases,
                brought=tuple(timer.at for timer in change.brought),
                horizon=now + change.ahead if change.ahead else None,
            )
        elif change.writer and change.writer in head.writers and not isinstance(event, Claim):
            # This request has won its swap before. Only the effects remain.
            event = Evaluate(leases=stored.leases)
        elif change.edition not in (None, head.edition):
            decision = Decision(head=head, changed=False, verdict=Verdict.STALE)
            return PlannedChange(number, change, stored, decision, (), ())
        rows = on_record.get(change.key, _NONE)
        event = not_again(event, rows, stored)
        decision = decide(head, event, now, change.writer, rows, self._together)
        if reached > decision.head.version:
            decision = reach(decision, reached, change.writer)
        return self._finished(number, change, stored, decision, event, now)

    def _finished(
        self,
        number: int,
        change: Change,
        stored: StoredState,
        decision: Decision,
        event: Event,
        now: datetime,
    ) -> PlannedChange:
        head = decision.head
        timers: list[Timer] = []
        if decision.timer_at is not None:
            timers.append(self._placing.timer(change.key, decision.timer_at, head.version, now))
        if head.runs and any(timer.at <= now for timer in change.brought):
            timers.extend(self._placing.watches(change, stored, head, now))
        plan = PlannedChange(number, change, stored, decision, timers, ())
        if head.runs and (
            isinstance(event, Evaluate) or not (decision.changed or isinstance(event, Claim))
        ):
            timers.extend(self._guards(plan, now))
        if change.safety and (decision.sends or decision.records or decision.kills):
            safety = self._placing.timer(change.key, now + SAFETY, head.version, now)
            # The job state may rely on a timer of the same time, which must outlive the effects.
            if safety not in timers:
                return replace(plan, safety=(safety,))
        return plan

    def _guards(self, plan: PlannedChange, now: datetime) -> Sequence[Timer]:
        """Return a timer for runs that an earlier swap queued, because they may be unsent.

        The writer of that swap may have crashed before it sent them. This evaluation consumes the
        trigger which that writer left, and no other trigger would send the runs.
        """
        change, decision = plan.change, plan.decision
        if change.brought and not handled(replace(plan, timers=()), now):
            return ()
        sent = {run.run_id for run in decision.sends}
        moments = [
            resend_at(run)
            for run in decision.head.runs
            if run.status is RunStatus.QUEUED and run.run_id not in sent
        ]
        if not moments:
            return ()
        return (self._placing.timer(change.key, min(moments), decision.head.version, now),)

    def _swap(self, plans: Sequence[PlannedChange]) -> list[int]:
        """Swap the states. Return the numbers of the changes that lost."""
        changed = [plan for plan in plans if plan.decision.changed]
        if not changed:
            return []
        answers = self._heads.swap([plan.swap for plan in changed])
        return [plan.number for plan, won in zip(changed, answers, strict=True) if not won]

    def _follow(
        self,
        plans: Sequence[PlannedChange],
        now: datetime,
        results: list[Result | None],
        late: Sequence[Timer],
    ) -> None:
        """Carry out steps three and four: the effects, then the deletion of the triggers.

        `now` is the time of the decision. A timer that becomes due during the effects was not due
        for the decision, so it stays. `late` timers were put again, into minutes that a poller may
        have read already.
        """
        try:
            recorded, sent = self._effects.follow(plans)
        except Unavailable as error:
            if self._together:
                raise
            self._log("effects_pending", error=error.message, jobs=len(plans))
            recorded = sent = [False] * len(plans)
        gone: list[Timer] = []
        put = list(late)
        for plan, told, taken in zip(plans, recorded, sent, strict=True):
            brought, done = plan.change.brought, told and taken
            over = handled(plan, now)
            kept = () if len(over) == len(brought) else tuple(t for t in brought if t not in over)
            leases = {} if plan.stored is None else plan.stored.leases
            results[plan.number] = Result(plan.decision, done, told, leases=leases, kept=kept)
            if plan.timers:
                put.extend(timer for timer in plan.timers if timer not in brought)
            if done:
                gone.extend(plan.safety)
                gone.extend(over)
        if put:
            self._wake.nudge(put)
        if gone:
            self._timers.delete(gone)


def _with_living(stored: StoredState, alive: Callable[[Run], bool], now: datetime) -> StoredState:
    """Return the state with valid leases for the runs that this process holds.

    The wall clock may have been set, so that their stored leases look expired.
    """
    living = {
        run.run_id: Lease(run.token, now + LEASE, beaten=True)
        for run in stored.head.runs
        if run.held and alive(run)
    }
    return stored._replace(leases={**stored.leases, **living}) if living else stored
