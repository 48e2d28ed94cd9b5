"""A transaction of the store: all or nothing, few writes, and a cache that equals the file."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.domain.events import Evaluate
from punctual.domain.run import Lease, RunStatus
from punctual.engine.changes.change import Change
from punctual.engine.ports.job_states import LeaseRenewal, Swap
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.node.files.data_folder import DATABASE
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    JOB,
    NOON,
    RUN,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    a_timer,
    after,
    an_id,
)
from tests.support.ports import a_change_applier, store_ports

HERE = JobKey("acme", JOB)
LEASE = Lease(token=2, until=after(30))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = Store.open(folder, ManualClock(NOON))
    yield store
    store.close()


def on_disk(folder: Path, query: str) -> list[Any]:
    """Return what another connection reads, which is only committed rows."""
    other = sqlite3.connect(folder / DATABASE)
    try:
        return other.execute(query).fetchall()
    finally:
        other.close()


def record_writes(store: Store) -> list[str]:
    """Return a list that collects the statements by which SQLite changes rows."""
    written: list[str] = []

    def note(statement: str) -> None:
        verb = statement.split()[0]
        if verb in ("INSERT", "UPDATE", "DELETE", "COMMIT"):
            table = next((word for word in statement.split() if word in TABLES), "")
            written.append(f"{verb} {table}".strip())

    store._db.set_trace_callback(note)
    return written


TABLES = {"heads", "leases", "timers", "runs", "bodies", "counts", "feed", "attempts", "changes"}


def test_no_write_is_on_disk_before_the_commit(store: Store, folder: Path) -> None:
    with store.transaction():
        store.timers.put([a_timer()])
        store.job_states.put_definitions([a_definition_row()])
        store.job_states.swap([Swap(a_job_state(), 0)])
        assert store.job_states.load([HERE])[HERE].state == a_job_state()
        assert on_disk(folder, "SELECT 1 FROM heads UNION ALL SELECT 1 FROM timers") == []
    assert len(on_disk(folder, "SELECT 1 FROM heads UNION ALL SELECT 1 FROM timers")) == 2


def test_run_leaves_its_state_only_with_its_history_row(store: Store) -> None:
    """A row that cannot be written leaves the run in its state. The next evaluation does both."""
    ended = a_run(
        status=RunStatus.SUCCESS,
        token=1,
        executor_id="e",
        nonce="m.0",
        attempt_at=NOON,
        ended_at=after(1),
    )
    store.job_states.put_definitions([a_definition_row()])
    store.job_states.swap([Swap(a_job_state(unrecorded=(ended,)), 0)])
    ports = store_ports(store, cast(Any, None), cast(Any, None))
    applier = a_change_applier(
        ports, lambda: after(60), lambda: 0.0, lambda event, **facts: None, store.transaction()
    )

    def evaluate() -> None:
        applier.apply([Change(HERE, Evaluate(), "an evaluation")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.history, "put_runs", _unavailable)
        with pytest.raises(Unavailable):
            evaluate()
    assert [run.run_id for run in store.job_states.load([HERE])[HERE].state.unrecorded] == [RUN]
    evaluate()
    assert store.job_states.load([HERE])[HERE].state.unrecorded == ()
    (row,) = store.history.get([RunKey(*HERE, RUN)], after(60)).values()
    assert row.run.status is RunStatus.SUCCESS


def _unavailable(*_: Any) -> Any:
    raise Unavailable("The data folder does not answer: Too many open files.")


def test_call_outside_a_transaction_commits_at_once(store: Store, folder: Path) -> None:
    store.timers.put([a_timer()])
    assert len(on_disk(folder, "SELECT 1 FROM timers")) == 1


def test_error_rolls_back_the_whole_transaction(store: Store, folder: Path) -> None:
    original = a_job_state()
    store.job_states.swap([Swap(original, 0, {RUN: LEASE})])

    def fail_after_much() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            store.job_states.put_definitions([a_definition_row()])
            store.job_states.swap([Swap(replace(original, version=2), 1, {RUN: None})])
            store.job_states.swap([Swap(a_job_state(an_id(2)), 0)])
            store.history.put_runs([a_row()])
            store.feed.publish([{"n": 1}])
            store.job_states.page("acme", None, 10)  # writes rows before the commit
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_much()
    assert store.job_states.load([HERE, JobKey("acme", an_id(2))]) == {
        HERE: (original, {RUN: LEASE})
    }
    assert store.timers.due(NOON, 0, after(99), None, 9)[:2] == ([], None)
    assert store.history.recorded_keys([RunKey("acme", JOB, RUN)]) == frozenset()
    assert store.count_jobs("acme") == {"SCHEDULED": 1}
    assert store.feed.publish([{"n": 2}]) == ["1"]
    assert on_disk(folder, "SELECT job_id FROM heads") == [(JOB,)]


def test_error_caught_inside_a_transaction_still_rolls_it_back(
    store: Store,
) -> None:
    """Rows may be partly written, so a caller that goes on gets an error."""
    store._db.execute("ALTER TABLE runs RENAME TO elsewhere")

    def go_on() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            with pytest.raises(Unavailable, match="no such table"):
                store.history.page(HERE, None, None, 10, NOON)

    with pytest.raises(Unavailable, match="nothing of its transaction"):
        go_on()
    assert store.timers.due(NOON, 0, NOON, None, 1)[:2] == ([], None)


def test_later_success_does_not_save_a_failed_transaction(store: Store, folder: Path) -> None:
    """The failed write may be partial, so a commit of the rest stores half a change."""
    read = "SELECT 1 FROM timers UNION ALL SELECT 1 FROM heads"

    def write_half() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            with pytest.raises(ZeroDivisionError), store.transaction():
                raise ZeroDivisionError
            with store.transaction():
                store.job_states.swap([Swap(a_job_state(), 0)])

    with pytest.raises(Unavailable, match="nothing of its transaction"):
        write_half()
    assert store.job_states.load([HERE]) == {}
    assert store.timers.due(NOON, 0, NOON, None, 1)[:2] == ([], None)
    assert on_disk(folder, read) == []
    store.timers.put([a_timer()])
    assert len(on_disk(folder, read)) == 1, "the next transaction starts clean"


def test_invalid_write_fails_only_its_caller(store: Store) -> None:
    with store.transaction():
        with pytest.raises(UnicodeEncodeError):
            store.job_states.put_definitions([a_definition_row(name="\ud800")])
        store.job_states.put_definitions([a_definition_row(an_id(2))])
    ref = (JobKey("acme", an_id(2)), "1-body")
    assert list(store.job_states.load_definitions([ref, (HERE, "1-body")])) == [ref]


def test_run_that_ends_in_one_transaction_writes_each_row_once(store: Store) -> None:
    store.job_states.swap([Swap(a_job_state(), 0)])
    store.timers.put([a_timer()])
    queued = a_job_state(version=2, runs=(a_run(),))
    running = a_job_state(version=3, runs=(a_run(status=RunStatus.RUNNING, token=3),))
    ended = a_job_state(version=4, unrecorded=(a_run(status=RunStatus.SUCCESS, ended_at=NOON),))
    written = record_writes(store)
    with store.transaction():
        store.job_states.swap([Swap(queued, 1)])
        store.timers.delete([a_timer()])
        store.job_states.swap([Swap(running, 2, {RUN: LEASE})])
        store.job_states.swap([Swap(ended, 3, {RUN: None})])
        store.history.put_runs([a_row()])
    store._db.set_trace_callback(None)
    assert sorted(written) == [
        "COMMIT",
        "DELETE timers",
        "INSERT changes",
        "INSERT counts",
        "INSERT runs",
        "UPDATE heads",
    ]


def test_transaction_that_only_reads_writes_nothing(store: Store) -> None:
    store.job_states.swap([Swap(a_job_state(), 0)])
    written = record_writes(store)
    with store.transaction():
        store.job_states.load([HERE])
        store.job_states.page("acme", None, 10)
        store.timers.due(NOON, 0, NOON, None, 10)
    assert written == []


def test_heartbeat_writes_the_lease_and_not_the_state(store: Store) -> None:
    store.job_states.swap([Swap(a_job_state(version=2), 0, {RUN: LEASE})])
    written = record_writes(store)
    store.job_states.renew_leases([LeaseRenewal(HERE, RUN, 2, after(50))])
    assert written == ["INSERT leases", "COMMIT"]


def test_outermost_of_nested_transactions_commits(store: Store, folder: Path) -> None:
    with store.transaction():
        with store.transaction():
            store.timers.put([a_timer()])
        assert on_disk(folder, "SELECT 1 FROM timers") == []
    assert len(on_disk(folder, "SELECT 1 FROM timers")) == 1


@pytest.mark.parametrize("stored_before", [True, False])
def test_timer_is_gone_after_put_and_delete_in_one_transaction(
    store: Store, stored_before: bool
) -> None:
    if stored_before:
        store.timers.put([a_timer()])
    with store.transaction():
        store.timers.put([a_timer()])
        store.timers.delete([a_timer()])
    assert store.timers.due(NOON, 0, NOON, None, 9)[:2] == ([], None)


def test_full_disk_is_reported_and_changes_nothing(store: Store) -> None:
    original = a_job_state()
    store.job_states.swap([Swap(original, 0)])
    fill_disk(store)

    def write_much() -> None:
        with store.transaction():
            store.job_states.swap([Swap(replace(original, version=2), 1)])
            store.job_states.put_definitions(
                [a_definition_row(an_id(n), payload="x" * 9_000) for n in range(50)]
            )

    with pytest.raises(Unavailable, match="The disk is full"):
        write_much()
    assert store.job_states.load([HERE])[HERE].state == original
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert list(store.job_states.swap([Swap(replace(original, version=2), 1)])) == [True]


def test_full_disk_while_reading_a_list_is_reported(store: Store) -> None:
    store.job_states.swap([Swap(a_job_state(), 0)])
    fill_disk(store)

    def write_and_read() -> None:
        with store.transaction():
            store.history.put_runs([a_row(an_id(n)) for n in range(500)])
            store.history.page(HERE, None, None, 10, NOON)

    with pytest.raises(Unavailable, match="The disk is full"):
        write_and_read()
    assert list(store.history.page(HERE, None, None, 10, NOON)) == []


def fill_disk(store: Store) -> None:
    """Leave SQLite no room for another page."""
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_committed_rows_are_there_after_reopening(store: Store, folder: Path) -> None:
    state = a_job_state(runs=(a_run(),))
    store.job_states.swap([Swap(state, 0, {RUN: LEASE})])
    store.close()
    reopened = Store.open(folder, ManualClock(NOON + timedelta(seconds=1)))
    try:
        assert reopened.job_states.load([HERE]) == {HERE: (state, {RUN: LEASE})}
    finally:
        reopened.close()
