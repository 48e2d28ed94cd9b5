"""The unit of work: all or nothing, few rows, and memory that agrees with the file."""

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
from punctual.node.clock import ManualClock
from punctual.node.sqlite.store import DATABASE_FILE, Store
from tests.support.builders import (
    JOB,
    NOON,
    RUN,
    a_body,
    a_head,
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
    """What another connection sees: only what is committed."""
    other = sqlite3.connect(folder / DATABASE_FILE)
    try:
        return other.execute(query).fetchall()
    finally:
        other.close()


def writes(store: Store) -> list[str]:
    """The statements that change rows, as SQLite runs them."""
    seen: list[str] = []

    def note(statement: str) -> None:
        verb = statement.split()[0]
        if verb in ("INSERT", "UPDATE", "DELETE", "COMMIT"):
            table = next((word for word in statement.split() if word in TABLES), "")
            seen.append(f"{verb} {table}".strip())

    store._db.set_trace_callback(note)
    return seen


TABLES = {"heads", "leases", "timers", "runs", "bodies", "counts", "feed", "attempts"}


def test_nothing_is_on_the_disk_before_the_unit_ends(store: Store, folder: Path) -> None:
    with store.transaction():
        store.timers.put([a_timer()])
        store.job_states.put_definitions([a_body()])
        store.job_states.swap([Swap(a_head(), 0)])
        assert store.job_states.load([HERE])[HERE].state == a_head()
        assert on_disk(folder, "SELECT 1 FROM heads UNION ALL SELECT 1 FROM timers") == []
    assert len(on_disk(folder, "SELECT 1 FROM heads UNION ALL SELECT 1 FROM timers")) == 2


def test_no_run_leaves_its_head_without_the_row_that_tells_of_it(store: Store) -> None:
    """A row that cannot be written leaves the run in its state. The next evaluation does both."""
    ended = a_run(
        status=RunStatus.SUCCESS,
        token=1,
        executor_id="e",
        nonce="m.0",
        attempt_at=NOON,
        ended_at=after(1),
    )
    store.job_states.put_definitions([a_body()])
    store.job_states.swap([Swap(a_head(unrecorded=(ended,)), 0)])
    ports = store_ports(store, cast(Any, None), cast(Any, None))
    steps = a_change_applier(
        ports, lambda: after(60), lambda: 0.0, lambda event, **facts: None, store.transaction()
    )

    def look() -> None:
        steps.apply([Change(HERE, Evaluate(), "a look")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.history, "put_runs", _deaf)
        with pytest.raises(Unavailable):
            look()
    assert [run.run_id for run in store.job_states.load([HERE])[HERE].state.unrecorded] == [RUN]
    look()
    assert store.job_states.load([HERE])[HERE].state.unrecorded == ()
    (row,) = store.history.get([RunKey(*HERE, RUN)], after(60)).values()
    assert row.run.status is RunStatus.SUCCESS


def _deaf(*_: Any) -> Any:
    raise Unavailable("The data folder does not answer: Too many open files.")


def test_a_call_outside_a_unit_is_a_unit(store: Store, folder: Path) -> None:
    store.timers.put([a_timer()])
    assert len(on_disk(folder, "SELECT 1 FROM timers")) == 1


def test_an_error_undoes_the_whole_unit(store: Store, folder: Path) -> None:
    kept = a_head()
    store.job_states.swap([Swap(kept, 0, {RUN: LEASE})])

    def fail_after_much() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            store.job_states.put_definitions([a_body()])
            store.job_states.swap([Swap(replace(kept, version=2), 1, {RUN: None})])
            store.job_states.swap([Swap(a_head(an_id(2)), 0)])
            store.history.put_runs([a_row()])
            store.feed.publish([{"n": 1}])
            store.job_states.page("acme", None, 10)  # writes rows before the commit
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_much()
    assert store.job_states.load([HERE, JobKey("acme", an_id(2))]) == {HERE: (kept, {RUN: LEASE})}
    assert store.timers.due(NOON, 0, after(99), None, 9)[:2] == ([], None)
    assert store.history.recorded_keys([RunKey("acme", JOB, RUN)]) == frozenset()
    assert store.count_jobs("acme") == {"SCHEDULED": 1}
    assert store.feed.publish([{"n": 2}]) == ["1"]
    assert on_disk(folder, "SELECT job_id FROM heads") == [(JOB,)]


def test_an_error_that_was_caught_inside_a_unit_still_undoes_it(
    store: Store,
) -> None:
    """Its rows may be half written: who goes on as if nothing had been must not be answered."""
    store._db.execute("ALTER TABLE runs RENAME TO elsewhere")

    def go_on() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            with pytest.raises(Unavailable, match="no such table"):
                store.history.page(HERE, None, None, 10, NOON)

    with pytest.raises(Unavailable, match="nothing of its transaction"):
        go_on()
    assert store.timers.due(NOON, 0, NOON, None, 1)[:2] == ([], None)


def test_a_later_success_inside_a_unit_does_not_save_what_failed_before(
    store: Store, folder: Path
) -> None:
    """The write that failed may be half done: committing the rest would store half a change."""
    read = "SELECT 1 FROM timers UNION ALL SELECT 1 FROM heads"

    def write_half() -> None:
        with store.transaction():
            store.timers.put([a_timer()])
            with pytest.raises(ZeroDivisionError), store.transaction():
                raise ZeroDivisionError
            with store.transaction():
                store.job_states.swap([Swap(a_head(), 0)])

    with pytest.raises(Unavailable, match="nothing of its transaction"):
        write_half()
    assert store.job_states.load([HERE]) == {}
    assert store.timers.due(NOON, 0, NOON, None, 1)[:2] == ([], None)
    assert on_disk(folder, read) == []
    store.timers.put([a_timer()])
    assert len(on_disk(folder, read)) == 1, "the next unit starts clean"


def test_what_cannot_be_written_fails_its_own_caller_only(store: Store) -> None:
    with store.transaction():
        with pytest.raises(UnicodeEncodeError):
            store.job_states.put_definitions([a_body(name="\ud800")])
        store.job_states.put_definitions([a_body(an_id(2))])
    wanted = (JobKey("acme", an_id(2)), "1-body")
    assert list(store.job_states.load_definitions([wanted, (HERE, "1-body")])) == [wanted]


def test_the_life_of_a_run_in_one_unit_is_one_write_of_each_row(store: Store) -> None:
    store.job_states.swap([Swap(a_head(), 0)])
    store.timers.put([a_timer()])
    queued = a_head(version=2, runs=(a_run(),))
    running = a_head(version=3, runs=(a_run(status=RunStatus.RUNNING, token=3),))
    ended = a_head(version=4, unrecorded=(a_run(status=RunStatus.SUCCESS, ended_at=NOON),))
    seen = writes(store)
    with store.transaction():
        store.job_states.swap([Swap(queued, 1)])
        store.timers.delete([a_timer()])
        store.job_states.swap([Swap(running, 2, {RUN: LEASE})])
        store.job_states.swap([Swap(ended, 3, {RUN: None})])
        store.history.put_runs([a_row()])
    store._db.set_trace_callback(None)
    assert sorted(seen) == [
        "COMMIT",
        "DELETE timers",
        "INSERT counts",
        "INSERT runs",
        "UPDATE heads",
    ]


def test_a_unit_that_only_reads_writes_nothing(store: Store) -> None:
    store.job_states.swap([Swap(a_head(), 0)])
    seen = writes(store)
    with store.transaction():
        store.job_states.load([HERE])
        store.job_states.page("acme", None, 10)
        store.timers.due(NOON, 0, NOON, None, 10)
    assert seen == []


def test_a_beat_writes_the_lease_and_not_the_head(store: Store) -> None:
    store.job_states.swap([Swap(a_head(version=2), 0, {RUN: LEASE})])
    seen = writes(store)
    store.job_states.renew_leases([LeaseRenewal(HERE, RUN, 2, after(50))])
    assert seen == ["INSERT leases", "COMMIT"]


def test_units_nest_and_the_outermost_commits(store: Store, folder: Path) -> None:
    with store.transaction():
        with store.transaction():
            store.timers.put([a_timer()])
        assert on_disk(folder, "SELECT 1 FROM timers") == []
    assert len(on_disk(folder, "SELECT 1 FROM timers")) == 1


@pytest.mark.parametrize("outside", [True, False])
def test_a_timer_that_stood_before_is_gone_after_put_and_delete(
    store: Store, outside: bool
) -> None:
    if outside:
        store.timers.put([a_timer()])
    with store.transaction():
        store.timers.put([a_timer()])
        store.timers.delete([a_timer()])
    assert store.timers.due(NOON, 0, NOON, None, 9)[:2] == ([], None)


def test_a_full_disk_is_told_and_leaves_everything_as_it_was(store: Store) -> None:
    kept = a_head()
    store.job_states.swap([Swap(kept, 0)])
    fill_disk(store)

    def write_much() -> None:
        with store.transaction():
            store.job_states.swap([Swap(replace(kept, version=2), 1)])
            store.job_states.put_definitions(
                [a_body(an_id(n), payload="x" * 9_000) for n in range(50)]
            )

    with pytest.raises(Unavailable, match="The disk is full"):
        write_much()
    assert store.job_states.load([HERE])[HERE].state == kept
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert list(store.job_states.swap([Swap(replace(kept, version=2), 1)])) == [True]


def test_a_full_disk_while_reading_a_list_is_told_too(store: Store) -> None:
    store.job_states.swap([Swap(a_head(), 0)])
    fill_disk(store)

    def write_and_read() -> None:
        with store.transaction():
            store.history.put_runs([a_row(an_id(n)) for n in range(500)])
            store.history.page(HERE, None, None, 10, NOON)

    with pytest.raises(Unavailable, match="The disk is full"):
        write_and_read()
    assert list(store.history.page(HERE, None, None, 10, NOON)) == []


def fill_disk(store: Store) -> None:
    """Let SQLite find no room for another page."""
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_what_is_committed_is_there_after_opening_again(store: Store, folder: Path) -> None:
    head = a_head(runs=(a_run(),))
    store.job_states.swap([Swap(head, 0, {RUN: LEASE})])
    store.close()
    again = Store.open(folder, ManualClock(NOON + timedelta(seconds=1)))
    try:
        assert again.job_states.load([HERE]) == {HERE: (head, {RUN: LEASE})}
    finally:
        again.close()
