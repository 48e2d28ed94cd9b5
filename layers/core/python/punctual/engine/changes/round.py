"""One round of changes, decided with one reading of the clock.

Each change is written in this order: put its timers, swap the job state, carry out the effects,
delete the timers that triggered it. A crash before the last step leaves these timers in place, and
the next evaluation ends in the same state.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from msgspec.structs import replace

from punctual.domain.decide import Decision, Verdict, decide
from punctual.domain.durations import FALLBACK_DELAY
from punctual.domain.errors import LaterVersion, Unavailable
from punctual.domain.events import Claim, Evaluate, Event, Finish
from punctual.domain.job_state import JobState
from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import Lease, Run, RunStatus
from punctual.domain.transitions.wait_queue import resend_at
from punctual.engine.changes.change import Change, Result
from punctual.engine.changes.effects import Effects
from punctual.engine.changes.plan import (
    PlannedChange,
    consumed_timers,
    find_recorded_runs,
    is_temporary,
    load_states,
    raise_version,
    without_recorded_runs,
)
from punctual.engine.changes.timer_placement import TimerPlacement, TimerWriter, blank_state
from punctual.engine.clock import ClockReading
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps

_NO_RUN_IDS: frozenset[str] = frozenset()


class Round:
    """Applies changes in four steps, which all take the time from the argument `reading`."""

    def __init__(
        self,
        *,
        job_states: JobStates,
        timers: Timers,
        history: History,
        wakeups: WakeUps,
        timer_placement: TimerPlacement,
        timer_writer: TimerWriter,
        effects: Effects,
        log: Log,
        transaction: AbstractContextManager[None] | None,
        holds_run: Callable[[Run], bool] | None,
    ) -> None:
        self._job_states = job_states
        self._timers = timers
        self._history = history
        self._wakeups = wakeups
        self._timer_placement = timer_placement
        self._timer_writer = timer_writer
        self._effects = effects
        self._log = log
        self._holds_run = holds_run
        self._transaction = nullcontext() if transaction is None else transaction
        self._transactional = transaction is not None

    def create(
        self, reading: ClockReading, new_jobs: Sequence[tuple[Change, JobState]]
    ) -> list[Result]:
        now = reading.wall
        plans = []
        for index, (change, initial_state) in enumerate(new_jobs):
            decision = decide(
                initial_state, change.event, now, change.write_id, _NO_RUN_IDS, self._transactional
            )
            stored = StoredState(initial_state, {})
            plans.append(self._with_timers(index, change, stored, decision, change.event, now))
        results: list[Result | None] = [None] * len(plans)
        self._write(plans, reading, results)
        return [result or Result(None) for result in results]

    def apply(
        self,
        reading: ClockReading,
        indexes: Sequence[int],
        changes: Sequence[Change],
        results: list[Result | None],
    ) -> list[int]:
        """Decide and write each change. Return the indexes of the changes that lost."""
        keys = [changes[index].key for index in indexes]
        stored, load_errors = load_states(self._job_states, keys)
        round_changes = [changes[index] for index in indexes]
        recorded_run_ids = find_recorded_runs(self._history, round_changes, stored, reading.wall)
        plans: list[PlannedChange] = []
        for index in indexes:
            change = changes[index]
            try:
                if change.key in load_errors:
                    raise load_errors[change.key]
                plan = self._plan(
                    index, change, stored.get(change.key), recorded_run_ids, reading.wall
                )
            except Exception as error:
                if not (change.trigger_timers or change.isolates_failure):
                    raise
                self._log("look_failed", job_id=change.key.job_id, error=type(error).__name__)
                results[index] = Result(
                    None,
                    effects_done=False,
                    has_failed=True,
                    is_newer_format=isinstance(error, LaterVersion),
                    may_succeed_later=is_temporary(error),
                )
                continue
            if plan is None:
                results[index] = Result(None)
            else:
                plans.append(plan)
        return self._write(plans, reading, results)

    def _write(
        self, plans: Sequence[PlannedChange], reading: ClockReading, results: list[Result | None]
    ) -> list[int]:
        """Carry out the four steps. Return the indexes of the changes that lost their swap."""
        new_timers = [timer for plan in plans for timer in (*plan.timers, *plan.fallback_timers)]
        with self._transaction:
            stored_timers = (
                self._timer_writer.put(new_timers, reading) if new_timers else new_timers
            )
            moved_timers = () if stored_timers is new_timers else stored_timers
            self._effects.write_attempts(plans, reading.wall)
            lost = self._swap(plans)
            won = [plan for plan in plans if plan.index not in lost] if lost else plans
            self._run_effects(won, reading.wall, results, moved_timers)
        return lost

    def _plan(
        self,
        index: int,
        change: Change,
        stored: StoredState | None,
        recorded_run_ids: Mapping[JobKey, frozenset[str]],
        now: datetime,
    ) -> PlannedChange | None:
        timer_version = max((timer.version for timer in change.trigger_timers), default=0)
        if stored is None:
            if not timer_version:
                return None
            blank = blank_state(change.key, timer_version, change.write_id, now)
            return PlannedChange(index, change, None, Decision(state=blank, changed=True), (), ())
        state = stored.state
        event = change.event
        if self._holds_run is not None and not isinstance(event, Claim | Finish):
            stored = _with_held_leases(stored, self._holds_run, now)
        if isinstance(event, Evaluate):
            event = replace(
                event,
                leases=stored.leases,
                trigger_times=tuple(timer.at for timer in change.trigger_timers),
                fire_ahead_until=now + change.fire_ahead if change.fire_ahead else None,
            )
        elif (
            change.write_id and change.write_id in state.write_ids and not isinstance(event, Claim)
        ):
            # This request has won its swap before. Only the effects remain.
            event = Evaluate(leases=stored.leases)
        elif change.edition not in (None, state.edition) or change.version not in (
            None,
            state.version,
        ):
            decision = Decision(state=state, changed=False, verdict=Verdict.STALE)
            return PlannedChange(index, change, stored, decision, (), ())
        job_run_ids = recorded_run_ids.get(change.key, _NO_RUN_IDS)
        event = without_recorded_runs(event, job_run_ids, stored)
        decision = decide(state, event, now, change.write_id, job_run_ids, self._transactional)
        if timer_version > decision.state.version:
            decision = raise_version(decision, timer_version, change.write_id)
        return self._with_timers(index, change, stored, decision, event, now)

    def _with_timers(
        self,
        index: int,
        change: Change,
        stored: StoredState,
        decision: Decision,
        event: Event,
        now: datetime,
    ) -> PlannedChange:
        state = decision.state
        timers: list[Timer] = []
        if decision.timer_at is not None:
            timers.append(
                self._timer_placement.timer(change.key, decision.timer_at, state.version, now)
            )
        if state.runs and any(timer.at <= now for timer in change.trigger_timers):
            timers.extend(self._timer_placement.lease_timers(change, stored, state, now))
        plan = PlannedChange(index, change, stored, decision, timers, ())
        if state.runs and (
            isinstance(event, Evaluate) or not (decision.changed or isinstance(event, Claim))
        ):
            timers.extend(self._resend_timers(plan, now))
        if change.needs_fallback_timer and (
            decision.runs_to_send or decision.runs_to_record or decision.run_ids_to_stop
        ):
            fallback_timer = self._timer_placement.timer(
                change.key, now + FALLBACK_DELAY, state.version, now
            )
            # The job state may rely on a timer of the same time, which must outlive the effects.
            if fallback_timer not in timers:
                return replace(plan, fallback_timers=(fallback_timer,))
        return plan

    def _resend_timers(self, plan: PlannedChange, now: datetime) -> Sequence[Timer]:
        """Return a timer to send queued runs again.

        An earlier writer may have crashed between its swap and its send. This evaluation deletes
        the timer that would have noticed.
        """
        change, decision = plan.change, plan.decision
        if change.trigger_timers and not consumed_timers(replace(plan, timers=()), now):
            return ()
        sent_run_ids = {run.run_id for run in decision.runs_to_send}
        resend_times = [
            resend_at(run)
            for run in decision.state.runs
            if run.status is RunStatus.QUEUED and run.run_id not in sent_run_ids
        ]
        if not resend_times:
            return ()
        return (
            self._timer_placement.timer(change.key, min(resend_times), decision.state.version, now),
        )

    def _swap(self, plans: Sequence[PlannedChange]) -> list[int]:
        """Swap the states. Return the indexes of the changes that lost."""
        changed = [plan for plan in plans if plan.decision.changed]
        if not changed:
            return []
        outcomes = self._job_states.swap([plan.swap for plan in changed])
        return [plan.index for plan, won in zip(changed, outcomes, strict=True) if not won]

    def _run_effects(
        self,
        plans: Sequence[PlannedChange],
        now: datetime,
        results: list[Result | None],
        moved_timers: Sequence[Timer],
    ) -> None:
        """Carry out steps three and four: the effects, then the deletion of the triggers.

        `now` is the time of the decision. A timer that becomes due during the effects was not due
        for the decision, so it stays. `moved_timers` were put again, into minutes that a poller may
        have read already.
        """
        try:
            recorded, sent = self._effects.run(plans)
        except Unavailable as error:
            if self._transactional:
                raise
            self._log("effects_pending", error=error.message, jobs=len(plans))
            recorded = sent = [False] * len(plans)
        timers_to_delete: list[Timer] = []
        new_timers = list(moved_timers)
        for plan, is_recorded, is_sent in zip(plans, recorded, sent, strict=True):
            trigger_timers, is_done = plan.change.trigger_timers, is_recorded and is_sent
            consumed = consumed_timers(plan, now)
            remaining_timers = (
                ()
                if len(consumed) == len(trigger_timers)
                else tuple(trigger for trigger in trigger_timers if trigger not in consumed)
            )
            leases = {} if plan.stored is None else plan.stored.leases
            results[plan.index] = Result(
                plan.decision,
                is_done,
                is_recorded,
                leases=leases,
                remaining_timers=remaining_timers,
            )
            if plan.timers:
                new_timers.extend(timer for timer in plan.timers if timer not in trigger_timers)
            if is_done:
                timers_to_delete.extend(plan.fallback_timers)
                timers_to_delete.extend(consumed)
        if new_timers:
            self._wakeups.notify_new_timers(new_timers)
        if timers_to_delete:
            self._timers.delete(timers_to_delete)


def _with_held_leases(
    stored: StoredState, holds_run: Callable[[Run], bool], now: datetime
) -> StoredState:
    """Return the state with valid leases for the runs that this process holds.

    The wall clock may have been set, so that their stored leases look expired.
    """
    held_leases = {
        run.run_id: Lease(run.token, now + RUN_LEASE, is_renewed=True)
        for run in stored.state.runs
        if run.is_held and holds_run(run)
    }
    return stored._replace(leases={**stored.leases, **held_leases}) if held_leases else stored
