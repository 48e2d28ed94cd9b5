"""The rules that always hold. They are checked at every write and at the end."""

from collections import Counter
from datetime import datetime, timedelta

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import ENDED_RUN_STATUSES, Run, RunStatus, Trigger
from punctual.domain.tenants.notify import entries_to_notify
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from punctual.engine.ports.timers import Timer
from tests.support.decide.decide_rules import check_ids, check_room, check_state
from tests.support.simulation.attempts import LOST_AT_MOST, SKEW, Reports, check_attempt, rules_of
from tests.support.simulation.ledger import Book
from tests.support.simulation.memory import Memory, Watch

_RANK = {RunStatus.CLAIMED: 1, RunStatus.RUNNING: 2}
_RETURNED = 10  # returns of one attempt before it counts as lost
_LATE = timedelta(minutes=3)


class Laws(Watch):
    """Raises AssertionError at the write that breaks a rule."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ended: dict[RunKey, Run] = {}
        self.begun: Counter[RunKey] = Counter()

    def swapped(self, old: StoredState | None, new: StoredState) -> None:
        """Check a job state before it is written."""
        head = new.state
        if head.is_blank:
            return
        was = None if old is None else old.state
        before = {} if was is None else {run.run_id: run for run in was.runs}
        assert head.version > (0 if was is None else was.version), "versions only grow"
        check_ids(head)
        check_state(head)
        if was is not None and not was.is_blank:
            check_room(was, head)
            is_back = was.status is JobStatus.CANCELLED and head.status is not JobStatus.CANCELLED
            assert not is_back, "rule 5: a cancelled job comes back"
        for run in (*head.runs, *head.unrecorded):
            self._watch_run(before.get(run.run_id), run, head)
        for waiting in head.wait_queue:
            self._not_ended(head, waiting.run_id)
        for run in head.unrecorded:
            self._ends(RunKey(head.tenant, head.job_id, run.run_id), run)

    def _watch_run(self, was: Run | None, run: Run, head: JobState) -> None:
        assert run.changed_at <= self._clock() + SKEW, "a decision of the future"
        if run.status not in ENDED_RUN_STATUSES:
            self._not_ended(head, run.run_id)
        if was is not None:
            assert run.past_attempts.startswith(was.past_attempts), (
                "rule 4: an attempt was forgotten"
            )
        if run.is_held and (was is None or not was.is_held or was.token != run.token):
            self._watch_claim(was, run, head)
        elif was is not None and run.is_held:
            assert run.executor_id == was.executor_id, "rule 4: the holder of a token changed"
            assert _RANK[run.status] >= _RANK[was.status], "rule 4: a status went back"

    def _watch_claim(self, was: Run | None, run: Run, head: JobState) -> None:
        assert was is not None, "a run is queued before it is held"
        assert not was.is_held, "rule 2: a run went from one holder to another at once"
        assert was.status is RunStatus.QUEUED, f"rule 5: claimed while {was.status}"
        assert run.token == head.version, "rule 4: the token is the version of the swap"
        assert run.token > was.token, "rule 4: tokens only grow"
        assert run.attempt_at is not None
        assert run.attempt_at >= run.due_at, "rule 6: started early"
        held = sum(other.is_held for other in head.runs)
        assert held <= head.limits.max_concurrency, "rule 3: more holders than the limit"
        assert head.status is not JobStatus.CANCELLED, "rule 5: started after a cancel"
        paused = head.status is JobStatus.PAUSED and run.trigger is Trigger.SCHEDULE
        assert not paused or was.has_begun, "rule 5: started after a pause"
        seconds = head.rules[run.definition].deadline_seconds
        limit = None if seconds is None else run.due_at + timedelta(seconds=seconds)
        assert was.has_begun or limit is None or run.attempt_at < limit, "begun after its deadline"
        key = RunKey(head.tenant, head.job_id, run.run_id)
        self.begun[key] += 1
        attempts = head.rules[run.definition].max_retries + LOST_AT_MOST
        assert self.begun[key] <= attempts * (_RETURNED + 1), "rule 7: tried without an end"

    def _not_ended(self, head: JobState, run_id: str) -> None:
        assert RunKey(head.tenant, head.job_id, run_id) not in self.ended, (
            "rule 2: a run that has its outcome came back"
        )

    def _ends(self, key: RunKey, run: Run) -> None:
        known = self.ended.get(key)
        assert run.status in ENDED_RUN_STATUSES
        if known is not None:
            assert (known.status, known.token) == (run.status, run.token), "rule 2: two outcomes"
            assert run.occurrence_count >= known.occurrence_count, "rule 2: an entry shrank"
        self.ended[key] = run

    def row_put(self, old: RunRow | None, new: RunRow) -> None:
        key = RunKey(new.tenant, new.job_id, new.run.run_id)
        assert key in self.ended, "rule 4: a history row for a run that has not ended"
        if old is not None:
            assert old.run.status == new.run.status, "rule 2: two outcomes in the history"
            assert old.run.token == new.run.token, "rule 4: two holders in the history"
            assert not old.detail.output_blob or old.detail.output_blob == new.detail.output_blob, (
                "rule 4: the output changed"
            )


class StoryLaws(Laws):
    """Rules of a story with known client calls and executor reports."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.reports = Reports()
        self.books: dict[JobKey, Book] = {}

    def book(self, key: JobKey) -> Book:
        return self.books.setdefault(key, Book())

    def swapped(self, old: StoredState | None, new: StoredState) -> None:
        head = new.state
        if not head.is_blank:
            key = JobKey(head.tenant, head.job_id)
            self.book(key).watch(None if old is None else old.state, head)
            if old is not None:
                self._watch_attempts(key, old, head)
        super().swapped(old, new)

    def _watch_attempts(self, key: JobKey, old: StoredState, head: JobState) -> None:
        after = {run.run_id: run for run in (*head.runs, *head.unrecorded)}
        for was in old.state.runs:
            run = after.get(was.run_id)
            if was.is_held and run is not None and not run.is_held:
                rules, lease = rules_of(old.state, head, was.definition), old.leases.get(was.run_id)
                check_attempt(self.reports, key, was, run, rules, lease, self._clock())

    def at_the_end(self, memory: Memory, now: datetime) -> None:
        """Check that everything has ended, and that every occurrence has exactly one outcome."""
        for key, stored in memory.heads.rows.items():
            if not stored.state.is_blank:
                self._ended_well(memory, stored.state)
                self.book(key).at_the_end(now)
                self._check_notices(memory, stored.state)
        for run_key, run in self.ended.items():
            self._check_row(memory, run_key, run)
        late = [t for t in outstanding(memory) if t.at < now - _LATE]
        assert not late, f"rule 7: timers that nobody looks at: {late}"
        assert not memory.queue.entries, "rule 7: messages that never go"

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

    def _check_notices(self, memory: Memory, head: JobState) -> None:
        """Check that each end in a `notify` list has a notice, and that no other notice exists."""
        mine = {key[2]: run for key, run in self.ended.items() if key[1] == head.job_id}
        found = [one for one in memory.notices.notices.values() if one.job_id == head.job_id]
        put = {(one.run_id, one.entry, one.occurrences) for one in found}
        lost = [
            (run.run_id, run.status)
            for run in mine.values()
            for entry in entries_to_notify(head.notify, run.status)
            if (run.run_id, entry, run.occurrence_count) not in put
        ]
        assert not lost, f"nobody is told of {lost}"
        for one in found:
            assert one.run_id in mine, "somebody is told of a run that has not ended"
            assert mine[one.run_id].status is one.status, "somebody is told of another end"
            assert one.entry in entries_to_notify(head.notify, one.status), (
                "somebody is told of too much"
            )

    def _ended_well(self, memory: Memory, head: JobState) -> None:
        assert not head.runs, f"rule 2: runs that never ended: {head.runs}"
        assert not head.wait_queue, f"rule 2: runs that wait for ever: {head.wait_queue}"
        key = JobKey(head.tenant, head.job_id)
        wanted = JobStatus.CANCELLED if self.book(key).asked.cancelled else JobStatus.COMPLETED
        assert head.status is wanted, f"the job is {head.status}"
        assert not memory.heads.rows[key].leases, "a lease of nobody"


def output_of(run_id: str, token: int) -> bytes:
    """Return the output that the executor with this token writes."""
    return f"{run_id} under {token}".encode()


def outstanding(memory: Memory) -> list[Timer]:
    """Return timers still to be evaluated. Those in a closed minute exist again in a later one."""
    done = memory.buckets.is_done
    return [timer for timer in memory.timers.all() if not done(timer.bucket, timer.shard)]
