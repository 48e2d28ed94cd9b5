"""The daily walk corrects counts of jobs and live runs, and never makes a right count wrong."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.count_log import CountChange, change_id_of
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.control.walk_progress import Progress, WalkProgress
from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.lists.job_counts import (
    NO_CLASS,
    CountedBatches,
    CountedChange,
    JobCounts,
    TenantJobCounts,
    job_class,
)
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.dispatch import late_timers, reconciler
from punctual.identity import new_id
from punctual.lambdas.quotas import build_job_counts
from punctual.lambdas.reconciler import recount as recounting
from punctual.lambdas.reconciler.recount import (
    COUNT_LAG,
    MAX_RECOUNT_TENANTS,
    WALK_TIME_MARGIN,
    Recount,
)
from punctual.lambdas.status import counters
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.handler import build_handler
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import NOON, a_job_state, a_run, after, an_id
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch
from tests.support.deployed.world import MINUTE
from tests.support.load.tables import Tables
from tests.support.load.timeline import Timeline
from tests.support.names.own_names import own_name

YEARLY = {"name": "n", "schedule_type": "CRON", "cron_expression": "0 0 1 1 *"}
HOUR = timedelta(hours=1)
JOBS = (("S", JobStatus.SCHEDULED), ("P", JobStatus.PAUSED))
LIVE = [RunStatus.WAITING, RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING]


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class Deployed:
    """The reconciler and the status function, both called by the test."""

    def __init__(self, functions: Dispatch) -> None:
        self.functions, self.clock, self.telemetry = functions, functions.clock, functions.telemetry
        self.stored_counts = Counters(
            functions.new_runtime().dynamo, functions.aws.settings.control_table, functions.clock
        )
        self.job_counts = build_job_counts(functions.new_runtime())
        self._status, self._stream = build_handler(functions.new_runtime()), Stream(functions.aws)
        self._drifts = count()

    def submit(self, jobs: int = 1, tenant: str = "acme", **document: str) -> None:
        for _ in range(jobs):
            wanted = {**YEARLY, "name": own_name("n"), **document}
            self.functions.jobs.submit(tenant, "ada", [Submission(wanted)])

    def follow(self, made_at: datetime | None = None) -> None:
        """Count what changed since the last call."""
        records = self._stream.catch()
        for record in records:
            at = made_at or self.clock.now
            record["dynamodb"]["ApproximateCreationDateTime"] = int(at.timestamp())
        assert self._status.handle(records) == []

    def drift(self, counts: Mapping[str, int], tenant: str = "acme") -> None:
        """Add `counts` to the stored counts, so that they are wrong."""
        mark = change_id_of(str(next(self._drifts)), tenant)
        jobs = {name: counts[f"job_{status}"] for name, status in JOBS if f"job_{status}" in counts}
        runs = {name: count for name, count in counts.items() if name.startswith("run_")}
        if jobs:
            self.job_counts.correct(tenant, f"{next(self._drifts):04}", jobs)
        self.stored_counts.count(tenant, [CountChange(mark, NOON - 5 * HOUR, runs)])

    def walk(self, seconds: float = 900) -> bool:
        """Call the reconciler; return whether the day's walk is over."""
        self.functions.walk(seconds)
        progress = WalkProgress(
            self.functions.new_runtime().dynamo, self.functions.aws.settings.control_table
        ).read()
        assert progress is not None
        return progress.is_complete

    def totals(self, tenant: str = "acme") -> Mapping[str, int]:
        """Return the counts of jobs and of runs."""
        jobs = self.job_counts.read(tenant).by_status(self.clock.now)
        return {
            **{f"job_{status}": count for status, count in jobs.items()},
            **self.stored_counts.totals(tenant),
        }


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    monkeypatch.setattr(late_timers, "LATE_TIMER_SPAN", timedelta(minutes=20))
    with dispatch() as functions:
        functions.planner.tick()
        yield Deployed(functions)


@pytest.mark.parametrize(
    "drift",
    [
        {"job_SCHEDULED": 4, "job_PAUSED": -1},
        {"job_SCHEDULED": -3},
        {"run_RUNNING": 4, "run_QUEUED": -2},
    ],
)
def test_counts_of_a_tenant_at_rest_become_exact(
    deployed: Deployed, drift: Mapping[str, int]
) -> None:
    deployed.submit(3)
    deployed.submit(schedule_type="IMMEDIATE", cron_expression="")
    deployed.follow()
    right = deployed.totals()
    assert right == {"job_SCHEDULED": 4, "run_QUEUED": 1}
    deployed.drift({**drift, "run_SUCCESS": 7})
    deployed.clock.set(after(3_600))  # no job has moved in this hour
    assert not deployed.walk()
    assert deployed.telemetry.problem_names == []
    deployed.clock.advance(HOUR)
    assert deployed.walk()
    assert deployed.telemetry.problem_names == ["counts_corrected"]
    assert deployed.telemetry.latest[Metric.RECONCILER_FINDS] == 1
    assert deployed.totals() == {**right, "run_SUCCESS": 7}


def test_right_counts_need_no_second_invocation(deployed: Deployed) -> None:
    deployed.submit(3)
    deployed.follow()
    assert deployed.walk()
    assert (deployed.telemetry.problem_names, deployed.totals()) == ([], {"job_SCHEDULED": 3})


def test_changes_not_counted_by_status_yet_are_not_counted_twice(deployed: Deployed) -> None:
    deployed.submit(3)
    deployed.follow()
    deployed.clock.set(after(7_200))
    deployed.submit(2)
    assert not deployed.walk()
    deployed.follow()
    deployed.clock.advance(HOUR)
    assert deployed.walk()
    assert (deployed.telemetry.problem_names, deployed.totals()) == ([], {"job_SCHEDULED": 5})


def test_busy_tenant_is_corrected_only_by_unexplained_difference(deployed: Deployed) -> None:
    deployed.submit(3)
    deployed.follow()
    deployed.drift({"job_SCHEDULED": 10})
    deployed.clock.set(after(7_200) - COUNT_LAG / 2)
    deployed.submit(2)
    deployed.follow()
    deployed.clock.set(after(7_200))
    assert not deployed.walk()
    deployed.clock.advance(MINUTE)
    deployed.submit()
    deployed.follow()
    deployed.clock.advance(HOUR)
    deployed.submit()
    deployed.follow()
    assert deployed.walk()
    assert deployed.telemetry.problem_names == ["counts_corrected"]
    slack = 1  # the job that was counted during the walk
    assert deployed.totals() == {"job_SCHEDULED": 7 + slack}


def test_correction_waits_for_count_lag_of_status(deployed: Deployed) -> None:
    deployed.submit()
    deployed.follow()
    deployed.drift({"job_SCHEDULED": 1})
    deployed.clock.set(after(7_200))
    assert not deployed.walk()
    deployed.clock.advance(COUNT_LAG - MINUTE)
    assert not deployed.walk()
    assert deployed.totals() == {"job_SCHEDULED": 2}
    deployed.clock.advance(MINUTE)
    assert deployed.walk()
    assert deployed.totals() == {"job_SCHEDULED": 1}


def test_walk_of_several_invocations_keeps_its_counts(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "RECONCILER_PAGE_SIZE", 2)
    heads = deployed.functions.new_runtime().ports.job_states.__class__
    real = heads.walk
    pages: Counter[str] = Counter()

    def slow(self: object, cursor: str | None, limit: int) -> object:
        pages["read"] += 1
        deployed.clock.advance(timedelta(seconds=40))
        return real(self, cursor, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(heads, "walk", slow)
    deployed.submit(5)
    deployed.follow()
    deployed.drift({"job_SCHEDULED": 2})
    deployed.clock.set(after(7_200))
    invocations = 1
    while not deployed.walk(90):
        deployed.clock.advance(MINUTE * 20)
        invocations += 1
        assert invocations < 20
    assert pages["read"] >= 3, "each invocation reads a page"
    assert (deployed.telemetry.problem_names, deployed.totals()) == (
        ["counts_corrected"],
        {"job_SCHEDULED": 5},
    )


def test_correction_is_not_repeated_after_crash(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.submit()
    deployed.follow()
    deployed.drift({"job_SCHEDULED": 3})
    deployed.clock.set(after(7_200))
    assert not deployed.walk()
    deployed.clock.advance(HOUR)

    def die(self: WalkProgress, progress: Progress) -> bool:
        raise Crashed

    with monkeypatch.context() as patched:
        patched.setattr(WalkProgress, "save", die)
        with pytest.raises(Crashed):
            deployed.walk()
    assert deployed.totals() == {"job_SCHEDULED": 1}
    assert deployed.walk()
    assert deployed.totals() == {"job_SCHEDULED": 1}


def test_tenants_to_count_are_drawn_daily_if_too_many(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recounting, "MAX_RECOUNT_TENANTS", 2)
    tenants = ["a", "b", "c", "d"]
    for tenant in tenants:
        deployed.submit(tenant=tenant)
    deployed.follow()
    for tenant in tenants:
        deployed.drift({"job_SCHEDULED": 1}, tenant)
    deployed.clock.set(after(7_200))
    wrong = tenants
    for day in range(20):
        deployed.walk()
        deployed.clock.advance(HOUR)
        assert deployed.walk()
        wrong = [name for name in tenants if deployed.totals(name) != {"job_SCHEDULED": 1}]
        assert day or len(wrong) == 2
        assert ("counts_left_out", {"why": "too many tenants"}) in deployed.telemetry.events
        deployed.clock.advance(timedelta(days=1))
    assert wrong == []


def test_walk_over_a_day_leaves_counts_to_next_walk(deployed: Deployed) -> None:
    deployed.submit()
    deployed.follow()
    deployed.drift({"job_SCHEDULED": 1})
    deployed.clock.set(after(7_200))
    assert not deployed.walk()
    deployed.clock.advance(25 * HOUR)
    assert deployed.walk()
    assert ("counts_left_out", {"why": "the walk took too long"}) in deployed.telemetry.events
    assert deployed.totals() == {"job_SCHEDULED": 2}


@pytest.fixture(scope="module")
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def test_counts_of_maximum_tenants_fit_into_progress_row(
    aws: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    names = [f"run_{status}" for status in LIVE]

    def totals(self: Counters, tenant: str) -> Mapping[str, int]:
        return {name: chance.randrange(10**6) for name in names}

    def jobs(self: JobCounts, tenant: str) -> TenantJobCounts:
        return TenantJobCounts({name: chance.randrange(10**6) for name, _ in JOBS}, {})

    monkeypatch.setattr(Counters, "totals", totals)
    monkeypatch.setattr(JobCounts, "read", jobs)
    stored_counts = Counters(aws.ports.job_states._dynamo, aws.settings.control_table, lambda: NOON)
    job_counts = JobCounts(aws.ports.job_states._dynamo, aws.settings.lists_table, 4)
    recount = Recount(stored_counts, job_counts, NOON, b"")
    for number in range(MAX_RECOUNT_TENANTS + 10):
        runs = tuple(a_run(an_id(n), status=status) for n, status in enumerate(LIVE))
        name = chance.randbytes(32).hex()
        recount.add([a_job_state(an_id(number), tenant=name, runs=runs)], [], NOON)
    assert len(recount.tenants) == MAX_RECOUNT_TENANTS
    assert recount.has_left_out_tenants
    assert len(recount.packed) < 300 * 1024, "DynamoDB takes 400"
    kept = WalkProgress(aws.ports.job_states._dynamo, aws.settings.control_table)
    assert kept.save(Progress(NOON, packed_counts=recount.packed))
    progress = kept.read()
    assert progress is not None
    again = Recount(stored_counts, job_counts, NOON, progress.packed_counts)
    assert again.tenants == recount.tenants


ANY_KEY = RowKey("acme#jobs#00", "job")


def class_of(state: JobState | None) -> str:
    return NO_CLASS if state is None else job_class(state.status, None)


def run_counts(change: CountChange) -> dict[str, int]:
    return {name: n for name, n in change.moved_counts.items() if name.startswith("run_")}


class BusyTenant:
    """Jobs that change during the walk, and a status function that lags."""

    def __init__(self, tenant: str, chance: random.Random) -> None:
        tables = Tables(Timeline(NOON))
        policy = RetryPolicy(lambda _: None, seed="t")
        dynamo, table = DynamoClient(lambda: tables.client(), ThreadPool(1), policy), "lists"
        self.stored_counts = Counters(dynamo, "control", lambda: self.now)
        self.job_counts = JobCounts(dynamo, table, 4)
        self.batches = CountedBatches(dynamo, table, 4, lambda: self.now, new_id(lambda: self.now))
        self.tenant, self.chance, self.now = tenant, chance, NOON
        self.heads: dict[str, JobState] = {}
        # The time at which each change is counted, and the classes that a job leaves and enters.
        self.waiting: list[tuple[datetime, CountChange, tuple[str, str]]] = []
        self.changes: list[CountChange] = []

    def change(self) -> None:
        job = an_id(self.chance.randrange(12))
        old = self.heads.pop(job, None)
        if old is None or self.chance.random() < 0.8:
            runs = tuple(
                a_run(an_id(100 + n), status=self.chance.choice(LIVE))
                for n in range(self.chance.randrange(3))
            )
            state = self.chance.choice(list(JobStatus))
            present = a_job_state(job, tenant=self.tenant) if old is None else old
            self.heads[job] = replace(present, status=state, runs=runs)
        totals = counters.status_count_changes(compare_states(old, self.heads.get(job)))
        mark = change_id_of(str(len(self.changes)), self.tenant)
        change = CountChange(mark, self.now, totals, {}, counters.moved_counts(totals))
        classes = (class_of(old), class_of(self.heads.get(job)))
        moved_jobs = {f"job_{status}": 1 for _, status in JOBS if classes[0] != classes[1]}
        change = change._replace(moved_counts={**change.moved_counts, **moved_jobs})
        self.changes.append(change)
        counted_at = self.now + self.chance.random() ** 3 * COUNT_LAG
        self.waiting.append((counted_at, change, classes))

    def live(self, minutes: float, changes: int) -> None:
        for _ in range(changes):
            self.now += timedelta(minutes=minutes) / changes
            self.change()
            if self.chance.random() < 0.4:
                self.follow()
        self.follow()

    def follow(self) -> None:
        due = [entry for entry in self.waiting if entry[0] <= self.now]
        self.waiting = [entry for entry in self.waiting if entry[0] > self.now]
        self.stored_counts.count(
            self.tenant, [change._replace(moved_counts=run_counts(change)) for _, change, _ in due]
        )
        batch = self.batches.open(self.tenant)
        moves = [classes for *_, classes in due if classes[0] != classes[1]]
        self.batches.close(
            batch,
            [CountedChange(self.tenant, ANY_KEY, batch.mark(old), new) for old, new in moves],
        )

    def right(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for head in self.heads.values():
            counts.update(recounting.live_counts_of(head))
        return counts

    def excess(self) -> dict[str, int]:
        """Return by how much the counts are too high, after all changes were counted."""
        counts = Counter(counters.live_counts(self.stored_counts.totals(self.tenant)))
        jobs = self.job_counts.read(self.tenant).by_class
        counts.update({f"job_{status}": jobs.get(name, 0) for name, status in JOBS})
        counts.subtract(self.right())
        return {name: number for name, number in counts.items() if number}


@pytest.mark.parametrize("seed", range(30))
def test_correction_never_makes_a_count_worse(seed: int) -> None:
    chance = random.Random(seed)
    busy = BusyTenant(f"busy{seed}", chance)
    busy.live(120, chance.choice((10, 30)))
    names = ("job_SCHEDULED", "job_PAUSED", "run_QUEUED", "run_RUNNING")
    drift = {name: chance.choice((0, 0, 1, -2, 40, -40)) for name in names} if seed % 3 else {}
    drift = {name: number for name, number in drift.items() if number}
    run_drift = {name: number for name, number in drift.items() if name.startswith("run_")}
    job_drift = {name: drift[f"job_{status}"] for name, status in JOBS if f"job_{status}" in drift}
    if job_drift:
        busy.job_counts.correct(busy.tenant, "0", job_drift)
    busy.stored_counts.count(busy.tenant, [CountChange(b"drift" + bytes(3), NOON, run_drift)])
    began, packed = busy.now, b""
    per_page = chance.choice((0, 0, 3))
    for first in range(0, 12, 3):
        jobs = [an_id(number) for number in range(first, first + 3)]
        heads = [busy.heads[job] for job in jobs if job in busy.heads]
        before, busy.now = busy.now, busy.now + timedelta(seconds=5)
        recount = Recount(busy.stored_counts, busy.job_counts, began, packed)
        recount.add(heads, [], before)
        packed, last = recount.packed, before
        busy.live(0.5, per_page) if per_page else busy.follow()
    recount.keep_differing()
    busy.live(COUNT_LAG / MINUTE, chance.choice((1, 5)))
    if chance.random() < 0.5:
        busy.now += COUNT_LAG
        busy.follow()
    assert recount.is_due(busy.now)
    for tenant in recount.tenants:
        recount.correct(tenant)
    busy.now += COUNT_LAG
    busy.follow()
    slack = Counter[str]()
    for change in busy.changes:
        if began - COUNT_LAG - MINUTE <= change.changed_at <= last + WALK_TIME_MARGIN + MINUTE:
            slack.update(run_counts(change))
        if began - HOUR - COUNT_LAG <= change.changed_at <= last + COUNT_LAG + HOUR:
            job_names = change.moved_counts.keys() - run_counts(change).keys()
            slack.update(dict.fromkeys(job_names, 1))
    off = busy.excess()
    assert off.keys() <= drift.keys()
    for name, number in drift.items():
        left = off.get(name, 0)
        assert 0 <= left * (1 if number > 0 else -1) <= min(abs(number), 2 * slack[name]), name
