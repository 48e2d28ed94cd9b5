"""What the node asks its store for: queued runs, ended leases, counts and expired rows."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, JobStatus, Priority, Rules
from punctual.domain.run import Lease, RunStatus, WaitingRun
from punctual.domain.utc import EPOCH
from punctual.engine.changes.run_results import output_key
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import Detail, JobKey, RunKey
from punctual.node.sqlite.feed import MAX_EVENT_ROW_BYTES
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    JOB,
    NOON,
    RUN,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_receipt,
    a_row,
    a_run,
    after,
    an_attempt,
    an_id,
)

MONTH = HISTORY_RETENTION + timedelta(days=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    yield store
    store.close()


def queued_state(
    number: int, due_at: datetime = NOON, priority: Priority = Priority.NORMAL, tenant: str = "acme"
) -> JobState:
    run = a_run(due_at=due_at)
    rules = {1: Rules(definition_ref="1-body", effective_at=NOON, priority=priority)}
    return a_job_state(an_id(number), runs=(run,), rules=rules, tenant=tenant)


def swap(store: Store, *states: JobState) -> None:
    assert all(store.job_states.swap([Swap(job_state, 0) for job_state in states]))


def purge_all(store: Store, now: datetime, limit: int) -> int:
    """Purge until nothing is left, and return the number of steps."""
    for step in range(1, 1_000):
        if not store.purge(now, limit):
            return step
    raise AssertionError("purging does not end")


def test_oldest_queued_time_is_of_its_tenant(store: Store) -> None:
    assert store.oldest_queued("acme") is None
    swap(
        store,
        queued_state(1, after(2.5), Priority.LOW),
        queued_state(2, after(7)),
        queued_state(3, tenant="other"),
    )
    assert store.oldest_queued("acme") == after(2.5)
    assert store.count_queued("acme") == 2


def test_start_ends_all_leases_and_returns_their_jobs(store: Store) -> None:
    lease = Lease(token=2, until=after(30), is_renewed=True)
    states = [a_job_state(an_id(n), version=2) for n in range(3)]
    runs = {RUN: lease, an_id(9): lease}
    store.job_states.swap(
        [Swap(states[0], 0, runs), Swap(states[1], 0, {RUN: lease}), Swap(states[2], 0)]
    )
    keys = [JobKey("acme", job_state.job_id) for job_state in states]
    assert sorted(store.end_all_leases()) == keys[:2]
    over = replace(lease, until=EPOCH)
    assert dict(store.job_states.load(keys)[keys[0]].leases) == dict.fromkeys(runs, over)
    won = store.job_states.swap([Swap(replace(states[1], version=3), 2, {RUN: None}, {RUN: over})])
    assert list(won) == [True]


def test_start_without_leases_ends_none(store: Store) -> None:
    swap(store, a_job_state())
    assert store.end_all_leases() == []


def test_job_counts_leave_out_blank_states(store: Store) -> None:
    swap(
        store,
        a_job_state(an_id(1)),
        a_job_state(an_id(2), status=JobStatus.PAUSED),
        a_job_state(tenant="other"),
    )
    blank = blank_state(JobKey("acme", an_id(3)), 1, "w", NOON)
    swap(store, blank)
    assert store.count_jobs("acme") == {"SCHEDULED": 1, "PAUSED": 1}
    store.job_states.swap([Swap(a_job_state(an_id(3), version=2), 1)])
    store.job_states.swap([Swap(a_job_state(an_id(2), version=2), 1)])
    assert store.count_jobs("acme") == {"SCHEDULED": 3}
    assert store.count_jobs("unknown") == {}


def test_job_that_replaces_a_blank_state_is_counted(store: Store) -> None:
    blank = blank_state(JobKey("acme", JOB), 1, "w", NOON)
    swap(store, blank)
    state = a_job_state(version=2, status=blank.status)
    assert list(store.job_states.swap([Swap(state, 1)])) == [True]
    assert store.count_jobs("acme") == {blank.status.value: 1}


def test_run_counts_include_active_and_ended_runs(store: Store) -> None:
    waiting = tuple(WaitingRun(an_id(n), 1, NOON, NOON, NOON) for n in range(3))
    swap(store, a_job_state(runs=(a_run(), a_run("b", RunStatus.RUNNING)), wait_queue=waiting))
    store.history.put_runs([a_row(an_id(n)) for n in range(4)])
    store.history.put_runs([a_row(an_id(n)) for n in range(2, 6)])
    assert store.count_runs("acme") == {"QUEUED": 1, "RUNNING": 1, "WAITING": 3, "SUCCESS": 6}


def test_state_is_not_active_if_its_commit_records_its_ended_run(store: Store) -> None:
    """Otherwise a search for active jobs reads each job that ever ran."""
    ended = a_job_state(unrecorded=(a_run(status=RunStatus.SUCCESS, ended_at=NOON),))
    with store.transaction():
        swap(store, ended)
        store.history.put_runs([a_row()])
    assert list(store.job_states.active_states("acme")) == []


@pytest.mark.parametrize("limit", [1, 3, 1_000])
def test_expired_jobs_are_removed_with_their_data(store: Store, limit: int) -> None:
    gone = [a_job_state(an_id(n), status=JobStatus.COMPLETED, ended_at=NOON) for n in range(7)]
    unexpired = a_job_state(an_id(50))
    late = a_job_state(an_id(51), status=JobStatus.COMPLETED, ended_at=after(86_400 * 2))
    swap(store, *gone, unexpired, late)
    for job_state in (*gone, unexpired):
        name = f"payload/{job_state.job_id}"
        store.blobs.put(name, b"large", "application/json")
        store.job_states.put_definitions(
            [
                a_definition_row(job_state.job_id, payload_blob=name),
                a_definition_row(job_state.job_id, "2"),
            ]
        )
    purge_all(store, NOON + MONTH, limit)
    assert [job_state.job_id for job_state in store.job_states.walk(None, 99).states] == [
        unexpired.job_id,
        late.job_id,
    ]
    refs = [(JobKey("acme", job_state.job_id), "2") for job_state in (*gone, unexpired)]
    assert list(store.job_states.load_definitions(refs)) == refs[-1:]
    assert store.blobs.get(f"payload/{gone[0].job_id}") is None
    assert store.blobs.get(f"payload/{unexpired.job_id}") == b"large"
    assert store.count_jobs("acme") == {"SCHEDULED": 1, "COMPLETED": 1}


def test_expired_run_is_removed_with_its_own_payload(store: Store) -> None:
    ended: dict[str, Any] = {"status": RunStatus.SUCCESS, "ended_at": NOON, "token": 2}
    names = []
    for number, own in ((1, True), (2, True), (3, False)):
        run = a_run(an_id(number), has_own_payload=own, **ended)
        expires = NOON + (HISTORY_RETENTION if number != 2 else MONTH * 2)
        store.history.put_runs([a_row(run.run_id, run=run, expires_at=expires)])
        names.append(payload_name(JobKey("acme", JOB), run.run_id))
        store.blobs.put(names[-1], b"{}", "application/json")
    purge_all(store, NOON + MONTH, 10)
    assert [store.blobs.get(name) for name in names] == [None, b"{}", b"{}"]


@pytest.mark.parametrize("limit", [1, 3, 1_000])
def test_expired_history_is_removed_with_its_blobs(store: Store, limit: int) -> None:
    def add_run(number: int, tenant: str, at: datetime) -> str:
        run_id = an_id(number, at)
        names = [f"{kind}/{tenant}/{run_id}" for kind in ("out", "log", "old")]
        names[0] = output_key(JobKey(tenant, JOB), run_id, 2)
        for name in names:
            store.blobs.put(name, b"x", "text/plain")
        detail = Detail(output_blob=names[0], log_blob=names[1])
        expires = at + HISTORY_RETENTION
        run_row = a_row(run_id, tenant=tenant, detail=detail, expires_at=expires)
        store.history.put_runs([run_row])
        attempt = an_attempt(run_id=run_id, tenant=tenant, detail=Detail(output_blob=names[2]))
        store.history.put_attempts([attempt])
        return run_id

    tenants = ("acme", "b", "c")
    expired = [(tenant, add_run(n, tenant, NOON)) for tenant in tenants for n in range(4)]
    unexpired = [(tenant, add_run(n, tenant, NOON + MONTH)) for tenant in tenants for n in range(2)]
    backfilled = an_id(2)
    store.history.put_runs([a_row(backfilled, an_id(9), expires_at=NOON + MONTH * 2)])
    purge_all(store, NOON + MONTH, limit)
    remaining = [
        (tenant, add_run.run.run_id)
        for tenant in tenants
        for add_run in store.history.page_all(tenant, RunFilters(), None, 99, EPOCH).rows
    ]
    assert sorted(remaining) == sorted([*unexpired, ("acme", backfilled)])
    for tenant, run_id in expired:
        assert store.blobs.get(output_key(JobKey(tenant, JOB), run_id, 2)) is None
        assert store.blobs.get(f"old/{tenant}/{run_id}") is None
        assert list(store.history.attempts(RunKey(tenant, JOB, run_id), EPOCH)) == []
    tenant, run_id = unexpired[0]
    assert store.blobs.get(f"log/{tenant}/{run_id}") == b"x"
    assert store.blobs.get(output_key(JobKey(tenant, JOB), run_id, 2)) == b"x"
    assert store.count_runs("acme") == {"SUCCESS": 3}


def test_purge_removes_later_rows_when_they_expire(store: Store) -> None:
    for day in range(3):
        at = NOON + timedelta(days=day)
        store.history.put_runs([a_row(an_id(day, at), expires_at=at + HISTORY_RETENTION)])
    for day in range(3):
        purge_all(store, NOON + HISTORY_RETENTION + timedelta(days=day, hours=2), 1)
        assert store.count_runs("acme").get("SUCCESS", 0) == 2 - day


def test_old_receipts_buckets_and_events_are_removed(store: Store) -> None:
    for n in range(5):
        store.receipts.claim("acme", [(f"k{n}", a_receipt())], NOON)
        lease = store.partitions.acquire(NOON + timedelta(minutes=n), 0, "p", NOON, after(60))
        assert lease is not None
        store.partitions.mark_done(lease)
    for n in range(5):
        with store.transaction():  # a row each
            store.feed.publish([{"n": n}])
    store.partitions.advance_watermark(None, NOON + timedelta(minutes=3))
    purge_all(store, NOON + timedelta(hours=25), 2)
    tables = ("receipts", "buckets", "feed")
    counts = [store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
    assert counts == [0, 2, 1]
    assert store.partitions.is_done(NOON, 0)


@pytest.mark.parametrize("filler", ["", "x" * 5_000, "x" * 70_000])
def test_events_published_together_share_rows_and_are_read_by_number(
    store: Store, filler: str
) -> None:
    events = [{"n": n, "filler": filler} for n in range(1, 151)]
    numbers = [*store.feed.publish(events[:150]), *store.feed.publish([])]
    numbers += store.feed.publish([{"n": 151}])
    assert numbers == [str(n) for n in range(1, 152)]
    rows = store._db.execute("SELECT seq, length(event) FROM feed ORDER BY seq").fetchall()
    assert len(rows) == {0: 4, 5_000: 13, 70_000: 151}[len(filler)]
    assert all(size < MAX_EVENT_ROW_BYTES + 70_000 * (len(filler) > 5_000) for _, size in rows)
    for after_number in (0, 1, 63, 64, 65, 149, 150, 151):
        for limit in (1, 2, 70, 500):
            events_read = store.feed.read(after_number, limit)
            assert [(number, event["n"]) for number, event in events_read] == [
                (n, n) for n in range(after_number + 1, min(after_number + limit, 151) + 1)
            ]


def test_event_numbers_go_on_after_old_events_are_removed(store: Store) -> None:
    first = store.feed.publish([{"n": 1}, {"n": 2}])
    purge_all(store, NOON + timedelta(days=3), 10)
    assert [int(number) for number in (*first, *store.feed.publish([{"n": 3}]))] == [1, 2, 3]
    assert store.feed.read(2, 10) == [(3, {"n": 3})]


def test_purge_of_nothing_is_one_step(store: Store) -> None:
    assert store.purge(NOON, 100) is False


def test_leases_ended_in_a_failed_transaction_stay_valid(store: Store) -> None:
    job_state, lease = a_job_state(version=2), Lease(token=2, until=after(30))
    store.job_states.swap([Swap(job_state, 0, {RUN: lease})])
    key = JobKey("acme", JOB)

    def fail_after_reading() -> None:
        with store.transaction():
            store.end_all_leases()
            assert store.job_states.load([key])[key].leases[RUN].until == EPOCH
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_reading()
    assert store.job_states.load([key])[key].leases[RUN] == lease
