"""The store against a dict: any order of swaps, heartbeats, reads, commits, errors, restarts."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from punctual.domain.job_state import JobStatus
from punctual.domain.run import Lease, RunStatus, WaitingRun
from punctual.domain.utc import EPOCH
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    NOON,
    ManualClock,
    a_job_state,
    a_row,
    a_run,
    a_timer,
    after,
    an_id,
)

JOBS = [an_id(n) for n in (3, 1, 2, 5, 4)]
RUNS = [an_id(1_000 + n) for n in range(3)]
KEYS = [JobKey("acme", job_id) for job_id in JOBS]
jobs = st.sampled_from(JOBS)
runs = st.lists(st.sampled_from(RUNS), unique=True, max_size=3)
leases = st.dictionaries(st.sampled_from(RUNS), st.booleans(), max_size=2)


class Model(RuleBasedStateMachine):
    """`stored` is the expected content. A failed transaction restores `saved`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock(NOON)
        self.write_count = 0
        self.in_transaction = False
        self.stored: dict[str, StoredState] = {}
        self.timers: set[Timer] = set()
        self.history: set[tuple[str, str]] = set()
        self.saved = (self.stored, self.timers, self.history)
        self.open_store()

    def open_store(self) -> None:
        self.store = Store.open(self.folder, self.clock)
        self.store.job_states._cache._max_cached = 2
        self.store._db.execute("PRAGMA synchronous = OFF")

    def teardown(self) -> None:
        self.end_transaction()
        self.store.close()
        shutil.rmtree(self.folder)

    @rule()
    def begin_transaction(self) -> None:
        if not self.in_transaction:
            self.saved = (dict(self.stored), set(self.timers), set(self.history))
            self.store.transaction().__enter__()
            self.in_transaction = True

    @rule()
    def end_transaction(self) -> None:
        if self.in_transaction:
            self.store.transaction().__exit__(None, None, None)
            self.in_transaction = False

    @rule()
    def fail_transaction(self) -> None:
        if self.in_transaction:
            error = ValueError()
            self.store.transaction().__exit__(ValueError, error, None)
            self.in_transaction = False
            self.stored, self.timers, self.history = self.saved

    @rule()
    def restart(self) -> None:
        self.end_transaction()
        self.store.close()
        self.open_store()

    @rule(
        job=jobs,
        alive=runs,
        waiting_count=st.integers(0, 2),
        lease_changes=leases,
        state=st.sampled_from(JobStatus),
        stale=st.booleans(),
        required=st.booleans(),
    )
    def swap(
        self,
        job: str,
        alive: list[str],
        waiting_count: int,
        lease_changes: dict[str, bool],
        state: JobStatus,
        stale: bool,
        required: bool,
    ) -> None:
        self.write_count += 1
        old = self.stored.get(job)
        version = old.state.version if old else 0
        job_state = a_job_state(
            job,
            version + 1,
            f"w{self.write_count}",
            status=state,
            runs=tuple(
                a_run(run_id, RunStatus.QUEUED if n % 2 == 0 else RunStatus.RUNNING)
                for n, run_id in enumerate(alive)
            ),
            wait_queue=tuple(
                WaitingRun(f"line{n}", 1, NOON, NOON, NOON) for n in range(waiting_count)
            ),
        )
        changes = {
            run_id: Lease(token=version, until=after(self.write_count)) if is_set else None
            for run_id, is_set in lease_changes.items()
        }
        before = dict(old.leases) if old else {}
        required_leases = before if required else {}
        won = self.store.job_states.swap(
            [Swap(job_state, version + (1 if stale else 0), changes, required_leases)]
        )
        assert list(won) == [not stale]
        if not stale:
            before.update({k: v for k, v in changes.items() if v is not None})
            remaining = {k: v for k, v in before.items() if changes.get(k, v) is not None}
            self.stored[job] = StoredState(job_state, remaining)

    @rule(job=jobs, run_id=st.sampled_from(RUNS), is_current=st.booleans())
    def renew_lease(self, job: str, run_id: str, is_current: bool) -> None:
        self.write_count += 1
        old = self.stored.get(job)
        lease = old.leases.get(run_id) if old else None
        token = (lease.token if lease else 0) + (0 if is_current else 1)
        (answer,) = self.store.job_states.renew_leases(
            [LeaseRenewal(JobKey("acme", job), run_id, token, after(self.write_count))]
        )
        if old is None or lease is None or not is_current:
            assert answer is None
        else:
            assert answer == old.state
            renewed = Lease(token=token, until=after(self.write_count), is_renewed=True)
            self.stored[job] = StoredState(old.state, {**old.leases, run_id: renewed})

    @rule(job=jobs, version=st.integers(1, 3), put=st.booleans())
    def timer(self, job: str, version: int, put: bool) -> None:
        timer = a_timer(after(version), job, version)
        (self.store.timers.put if put else self.store.timers.delete)([timer])
        (self.timers.add if put else self.timers.discard)(timer)

    @rule(job=jobs, run_id=st.sampled_from(RUNS))
    def end_run(self, job: str, run_id: str) -> None:
        self.store.history.put_runs([a_row(run_id, job)])
        self.history.add((run_id, job))

    @rule()
    def read_lists(self) -> None:
        """Compare all lists. A read writes pending rows in the middle of a transaction."""
        states = self.store.job_states.walk(None, 100).states
        assert states == [self.stored[job].state for job in sorted(self.stored)]
        due = self.store.timers.due(NOON, 0, after(99), None, 100).timers
        assert list(due) == sorted(self.timers, key=lambda timer: timer.sort_key)
        rows = self.store.history.page_all("acme", RunFilters(), None, 100, NOON).rows
        assert [(row.run.run_id, row.job_id) for row in rows] == sorted(self.history)[::-1]
        active_ids = {job_state.job_id for job_state in self.store.job_states.active_states("acme")}
        assert active_ids == {
            job
            for job, (job_state, _) in self.stored.items()
            if job_state.runs or job_state.wait_queue
        }

    @rule()
    def count(self) -> None:
        expected = Counter(job_state.status.value for job_state, _ in self.stored.values())
        assert self.store.count_jobs("acme") == expected
        alive = [
            run.status.value for job_state, _ in self.stored.values() for run in job_state.runs
        ]
        waiting = sum(len(job_state.wait_queue) for job_state, _ in self.stored.values())
        ran = Counter(alive) + Counter(WAITING=waiting, SUCCESS=len(self.history))
        assert self.store.count_runs("acme") == ran
        queued = Counter(alive)["QUEUED"]
        assert self.store.count_queued("acme") == queued
        assert (self.store.oldest_queued("acme") is not None) is (queued > 0)

    @rule()
    def end_leases(self) -> None:
        held = {JobKey("acme", job) for job, stored in self.stored.items() if stored.leases}
        assert set(self.store.end_all_leases()) == held
        for job, (job_state, leases) in list(self.stored.items()):
            ended = {k: replace(v, until=EPOCH) for k, v in leases.items()}
            self.stored[job] = StoredState(job_state, ended)

    @invariant()
    def loaded_states_equal_the_model(self) -> None:
        loaded = self.store.job_states.load(KEYS)
        assert {key.job_id: stored for key, stored in loaded.items()} == self.stored


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
