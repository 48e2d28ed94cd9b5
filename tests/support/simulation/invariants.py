"""The rules that always hold. They are checked at every write and at the end."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import ENDED_RUN_STATUSES, Run, RunStatus, Trigger
from punctual.domain.tenants.notify import entries_to_notify
from punctual.engine.commands.job_names import held_name
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.lists.job_names import NameKey
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from punctual.engine.ports.timers import Timer
from tests.support.decide.decide_rules import check_ids, check_room, check_state
from tests.support.simulation.attempt_checks import (
    MAX_LOST_ATTEMPTS,
    SKEW,
    Reports,
    check_attempt,
    rules_of,
)
from tests.support.simulation.job_ledger import JobLedger
from tests.support.simulation.memory import Memory, WriteObserver

_RANK = {RunStatus.CLAIMED: 1, RunStatus.RUNNING: 2}
_RETURNED = 10  # returns of one attempt before it counts as lost
_LATE = timedelta(minutes=3)


class Invariants(WriteObserver):
    """Raises AssertionError at the write that breaks a rule."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ended: dict[RunKey, Run] = {}
        self.begun: Counter[RunKey] = Counter()

    def before_swap(self, old: StoredState | None, new: StoredState) -> None:
        """Check a job state before it is written."""
        state = new.state
        if state.is_blank:
            return
        was = None if old is None else old.state
        before = {} if was is None else {run.run_id: run for run in was.runs}
        assert state.version > (0 if was is None else was.version), "versions only grow"
        check_ids(state)
        check_state(state)
        if was is not None and not was.is_blank:
            check_room(was, state)
            is_back = was.status is JobStatus.CANCELLED and state.status is not JobStatus.CANCELLED
            assert not is_back, "rule 5: a cancelled job comes back"
        for run in (*state.runs, *state.unrecorded):
            self._watch_run(before.get(run.run_id), run, state)
        for waiting in state.wait_queue:
            self._not_ended(state, waiting.run_id)
        for run in state.unrecorded:
            self._ends(RunKey(state.tenant, state.job_id, run.run_id), run)

    def _watch_run(self, was: Run | None, run: Run, state: JobState) -> None:
        assert run.changed_at <= self._clock() + SKEW, "a decision with a future time"
        if run.status not in ENDED_RUN_STATUSES:
            self._not_ended(state, run.run_id)
        if was is not None:
            assert run.past_attempts.startswith(was.past_attempts), (
                "rule 4: an attempt was forgotten"
            )
        if run.is_held and (was is None or not was.is_held or was.token != run.token):
            self._watch_claim(was, run, state)
        elif was is not None and run.is_held:
            assert run.executor_id == was.executor_id, "rule 4: the holder of a token changed"
            assert _RANK[run.status] >= _RANK[was.status], "rule 4: a status went back"

    def _watch_claim(self, was: Run | None, run: Run, state: JobState) -> None:
        assert was is not None, "a run is queued before it is held"
        assert not was.is_held, "rule 2: a run went from one holder to another at once"
        assert was.status is RunStatus.QUEUED, f"rule 5: claimed while {was.status}"
        assert run.token == state.version, "rule 4: the token is the version of the swap"
        assert run.token > was.token, "rule 4: tokens only grow"
        assert run.attempt_at is not None
        assert run.attempt_at >= run.due_at, "rule 6: started early"
        held = sum(other.is_held for other in state.runs)
        assert held <= state.limits.max_concurrency, "rule 3: more holders than the limit"
        assert state.status is not JobStatus.CANCELLED, "rule 5: started after a cancel"
        paused = state.status is JobStatus.PAUSED and run.trigger is Trigger.SCHEDULE
        assert not paused or was.has_begun, "rule 5: started after a pause"
        seconds = state.rules[run.definition].deadline_seconds
        limit = None if seconds is None else run.due_at + timedelta(seconds=seconds)
        has_started = bool(was.past_attempts)
        assert has_started or limit is None or run.attempt_at < limit, "begun after its deadline"
        key = RunKey(state.tenant, state.job_id, run.run_id)
        self.begun[key] += 1
        attempts = state.rules[run.definition].max_retries + MAX_LOST_ATTEMPTS
        assert self.begun[key] <= attempts * (_RETURNED + 1), "rule 7: attempts without an end"

    def _not_ended(self, state: JobState, run_id: str) -> None:
        assert RunKey(state.tenant, state.job_id, run_id) not in self.ended, (
            "rule 2: a run that has its outcome came back"
        )

    def _ends(self, key: RunKey, run: Run) -> None:
        previous = self.ended.get(key)
        assert run.status in ENDED_RUN_STATUSES
        if previous is not None:
            assert (previous.status, previous.token) == (run.status, run.token), (
                "rule 2: two outcomes"
            )
            assert run.occurrence_count >= previous.occurrence_count, (
                "rule 2: the count of an entry became smaller"
            )
        self.ended[key] = run

    def before_row(self, old: RunRow | None, new: RunRow) -> None:
        key = RunKey(new.tenant, new.job_id, new.run.run_id)
        assert key in self.ended, "rule 4: a history row for a run that has not ended"
        if old is not None:
            assert old.run.status == new.run.status, "rule 2: two outcomes in the history"
            assert old.run.token == new.run.token, "rule 4: two holders in the history"
            assert not old.detail.output_blob or old.detail.output_blob == new.detail.output_blob, (
                "rule 4: the output changed"
            )


class Swapped(NamedTuple):
    """A write of a job state, with the stored state before it."""

    at: datetime
    old: StoredState | None
    new: StoredState


class Recorded(NamedTuple):
    """A write of a history row."""

    at: datetime
    row: RunRow


class StoryInvariants(Invariants):
    """Rules of a story with known client calls and executor reports.

    `writes` holds all writes of job states and history rows in their order.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.writes: list[Swapped | Recorded] = []
        self.reports = Reports()
        self.ledgers: dict[JobKey, JobLedger] = {}

    def ledger_of(self, key: JobKey) -> JobLedger:
        return self.ledgers.setdefault(key, JobLedger())

    def before_swap(self, old: StoredState | None, new: StoredState) -> None:
        state = new.state
        if not state.is_blank:
            key = JobKey(state.tenant, state.job_id)
            self.ledger_of(key).watch(None if old is None else old.state, state)
            if old is not None:
                self._watch_attempts(key, old, state)
        super().before_swap(old, new)
        self.writes.append(Swapped(self._clock(), old, new))

    def before_row(self, old: RunRow | None, new: RunRow) -> None:
        super().before_row(old, new)
        self.writes.append(Recorded(self._clock(), new))

    def _watch_attempts(self, key: JobKey, old: StoredState, state: JobState) -> None:
        after = {run.run_id: run for run in (*state.runs, *state.unrecorded)}
        for was in old.state.runs:
            run = after.get(was.run_id)
            if was.is_held and run is not None and not run.is_held:
                rules, lease = (
                    rules_of(old.state, state, was.definition),
                    old.leases.get(was.run_id),
                )
                check_attempt(self.reports, key, was, run, rules, lease, self._clock())

    def check_end(self, memory: Memory, now: datetime) -> None:
        """Check that everything has ended, and that every occurrence has exactly one outcome."""
        for key, stored in memory.job_states.rows.items():
            if not stored.state.is_blank:
                self._ended_well(memory, stored.state)
                self.ledger_of(key).check_end(now)
                self._check_notifications(memory, stored.state)
        self._check_names(memory)
        for run_key, run in self.ended.items():
            self._check_row(memory, run_key, run)
        late = [t for t in pending_timers(memory) if t.at < now - _LATE]
        assert not late, f"rule 7: timers that no poller evaluates: {late}"
        assert not memory.run_queue.entries, "rule 7: messages that are never consumed"

    def _check_names(self, memory: Memory) -> None:
        """Check that each job with a unique name has the row of this name."""
        for key, stored in memory.job_states.rows.items():
            state = stored.state
            if state.is_blank:
                continue
            ref = (key, state.current_rules.definition_ref)
            definition = memory.job_states.load_definitions([ref])[ref]
            name = held_name(state.kind, state.status, definition.name)
            if name is not None:
                row = memory.job_names.rows.get(NameKey(key.tenant, name))
                assert row is not None, f"the name {name} has no row"
                assert row.job_id == key.job_id, f"the name {name} belongs to another job"

    def _check_row(self, memory: Memory, key: RunKey, run: Run) -> None:
        row = memory.history.rows.get(key)
        assert row is not None, f"rule 2: no history row for {run.run_id} {run.status}"
        assert (row.run.status, row.run.token) == (run.status, run.token)
        assert row.run.occurrence_count == run.occurrence_count, (
            "rule 2: the row says another count"
        )
        if run.status is RunStatus.SUCCESS:
            name = row.detail.output_blob
            assert name.endswith(f"/{run.attempt}"), (
                f"rule 4: not the holder's output: {name!r} of attempt {run.attempt}"
            )
            written = memory.blobs.blobs.get(name)
            assert written == output_of(run.run_id, run.token), f"rule 1: {name} holds {written!r}"

    def _check_notifications(self, memory: Memory, state: JobState) -> None:
        """Check that each end in a `notify` list has a notification, and that no other exists."""
        runs_of_job = {key[2]: run for key, run in self.ended.items() if key[1] == state.job_id}
        notifications = [
            notification
            for notification in memory.notifications.rows.values()
            if notification.job_id == state.job_id
        ]
        stored = {
            (notification.run_id, notification.entry, notification.occurrences)
            for notification in notifications
        }
        missing = [
            (run.run_id, run.status)
            for run in runs_of_job.values()
            for entry in entries_to_notify(state.notify, run.status)
            if (run.run_id, entry, run.occurrence_count) not in stored
        ]
        assert not missing, f"no notification of {missing}"
        for notification in notifications:
            assert notification.run_id in runs_of_job, "a notification of a run that has not ended"
            assert runs_of_job[notification.run_id].status is notification.status, (
                "a notification of another end"
            )
            assert notification.entry in entries_to_notify(state.notify, notification.status), (
                "a notification without an entry"
            )

    def _ended_well(self, memory: Memory, state: JobState) -> None:
        assert not state.runs, f"rule 2: runs that never ended: {state.runs}"
        assert not state.wait_queue, (
            f"rule 2: runs that never leave the wait queue: {state.wait_queue}"
        )
        key = JobKey(state.tenant, state.job_id)
        wanted = (
            JobStatus.CANCELLED if self.ledger_of(key).requests.cancelled else JobStatus.COMPLETED
        )
        assert state.status is wanted, f"the job is {state.status}"
        assert not memory.job_states.rows[key].leases, "a lease without a holder"


def output_of(run_id: str, token: int) -> bytes:
    """Return the output that the executor with this token writes."""
    return f"{run_id} under {token}".encode()


def pending_timers(memory: Memory) -> list[Timer]:
    """Return timers still to be evaluated. Those in a closed minute exist again in a later one."""
    done = memory.partitions.is_done
    return [timer for timer in memory.timers.all() if not done(timer.bucket, timer.shard)]
