"""A planned change: the state that was read, the decision, and the timers that go with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.decide import Decision
from punctual.domain.draft import MAX_WRITE_IDS
from punctual.domain.errors import LaterVersion, Unavailable, Unreadable
from punctual.domain.events import Backfill, Claim, Evaluate, Event, Finish, StartRun
from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.engine.changes.change import Change
from punctual.engine.commands.audit import note_for_swap
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState, Swap
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.engine.ports.timers import Timer

# A claim or finish rewrites up to this many pending history rows without a check whether they
# exist. Rewriting is cheaper than checking.
MAX_UNCHECKED_HISTORY_ROWS = 8
# If a pending row is older than this, check first.
MAX_UNCHECKED_HISTORY_AGE = timedelta(hours=1)


class PlannedChange(Struct, frozen=True):
    index: int
    change: Change
    stored: StoredState | None
    decision: Decision
    timers: Sequence[Timer]
    fallback_timers: Sequence[Timer]

    @property
    def swap(self) -> Swap:
        decision, note = self.decision, self.change.note
        previous_state = None if self.stored is None else self.stored.state
        if note is not None:
            note = note_for_swap(note, previous_state, decision.state)
        expected_version = 0 if previous_state is None else previous_state.version
        return Swap(
            decision.state, expected_version, decision.leases, decision.required_leases, note
        )


def load_states(
    job_states: JobStates, keys: Sequence[JobKey]
) -> tuple[Mapping[JobKey, StoredState], Mapping[JobKey, Exception]]:
    """Load the states of these jobs, and the error of each that cannot be read.

    An unreadable row fails only its own job. The batch is halved until that row stands alone.
    """
    try:
        return job_states.load(keys), {}
    except Exception as error:
        if is_temporary(error):
            raise
        if len(keys) == 1:
            return {}, {keys[0]: error}
    middle = len(keys) // 2
    stored, errors = load_states(job_states, keys[:middle])
    more_stored, more_errors = load_states(job_states, keys[middle:])
    return {**stored, **more_stored}, {**errors, **more_errors}


def is_temporary(error: Exception) -> bool:
    """Return whether the store failed, and not the row."""
    return isinstance(error, Unavailable) and not isinstance(error, LaterVersion | Unreadable)


def consumed_timers(plan: PlannedChange, now: datetime) -> Sequence[Timer]:
    """Return the timers of this change that are consumed.

    A timer that is not due yet is consumed only if the state relied on it. Other timers stay, for
    example one that secures the effects of an API call.
    """
    trigger_timers = plan.change.trigger_timers
    if not trigger_timers:
        return ()
    stored, next_timer_at = plan.stored, plan.decision.state.timer_at
    previous_timer_at = None if stored is None else stored.state.timer_at
    return [
        timer
        for timer in trigger_timers
        if timer.at != next_timer_at
        and (timer.at <= now or timer.at == previous_timer_at or stored is None)
        and timer not in plan.timers
    ]


def first_per_job(pending: Sequence[int], changes: Sequence[Change]) -> tuple[list[int], list[int]]:
    """Split the changes into the first of each job, and the later ones."""
    seen_keys: set[JobKey] = set()
    first, later = [], []
    for index in pending:
        if changes[index].key in seen_keys:
            later.append(index)
        else:
            seen_keys.add(changes[index].key)
            first.append(index)
    return first, later


def raise_version(decision: Decision, version: int, write_id: str) -> Decision:
    """Raise the version to that of a timer.

    A timer of a version that the state has not reached comes from a writer that has not swapped
    yet. Take its version now, so that its swap fails.
    """
    state = decision.state
    write_ids = (
        state.write_ids if decision.changed else (*state.write_ids[1 - MAX_WRITE_IDS :], write_id)
    )
    return replace(
        decision, state=replace(state, version=version, write_ids=write_ids), changed=True
    )


def find_recorded_runs(
    history: History, changes: Sequence[Change], stored: Mapping[JobKey, StoredState], now: datetime
) -> Mapping[JobKey, frozenset[str]]:
    """Return the ids of the ended runs that have their history row, by job.

    The check covers ended runs in the state, and ids of runs that a request would make.
    """
    runs_by_key: dict[RunKey, Run] = {}
    for change in changes:
        stored_state = stored.get(change.key)
        if stored_state is None or not stored_state.state.unrecorded:
            continue
        has_many_ended = len(stored_state.state.unrecorded) > MAX_UNCHECKED_HISTORY_ROWS
        if has_many_ended or not _may_skip_history_check(change.event, stored_state.state, now):
            runs_by_key.update(
                (RunKey(*change.key, run.run_id), run) for run in stored_state.state.unrecorded
            )
    single_keys = [
        key for key, run in runs_by_key.items() if run.occurrence_count == 1
    ] + _requested_run_keys(changes)
    grouped_keys = [key for key, run in runs_by_key.items() if run.occurrence_count > 1]
    recorded_keys = list(history.recorded_keys(single_keys)) if single_keys else []
    rows = history.get(grouped_keys, now) if grouped_keys else {}
    # An entry for many occurrences may have grown since its row was written.
    recorded_keys += [
        key
        for key, row in rows.items()
        if row.run.occurrence_count == runs_by_key[key].occurrence_count
    ]
    by_key: dict[JobKey, set[str]] = {}
    for tenant, job_id, run_id in recorded_keys:
        by_key.setdefault(JobKey(tenant, job_id), set()).add(run_id)
    return {key: frozenset(run_ids) for key, run_ids in by_key.items()}


def _may_skip_history_check(event: Event, state: JobState, now: datetime) -> bool:
    """Return True if the history rows may be rewritten without an existence check.

    A job with notifications needs the check, because each write of a row notifies again.
    """
    if state.notify or not isinstance(event, Claim | Finish):
        return False
    since = now - MAX_UNCHECKED_HISTORY_AGE
    return all((run.ended_at or run.changed_at) >= since for run in state.unrecorded)


def _requested_run_keys(changes: Sequence[Change]) -> list[RunKey]:
    """Return the runs that an earlier copy of the same request may have started.

    The run may have ended and left the job state already.
    """
    keys: list[RunKey] = []
    for change in changes:
        event = change.event
        if isinstance(event, StartRun) and event.has_idempotency_key:
            keys.append(RunKey(*change.key, event.run_id))
        elif isinstance(event, Backfill):
            keys += [RunKey(*change.key, run_id) for run_id, _ in event.runs]
    return keys


def without_recorded_runs(
    event: Event, recorded_run_ids: frozenset[str], stored: StoredState
) -> Event:
    """Return the event without runs that have a history row.

    Rows are read after the state, so a run that left the state in between is found by its row.
    """
    if isinstance(event, StartRun) and event.run_id in recorded_run_ids:
        return Evaluate(leases=stored.leases)
    if isinstance(event, Backfill) and recorded_run_ids:
        return Backfill(tuple(run for run in event.runs if run[0] not in recorded_run_ids))
    return event
