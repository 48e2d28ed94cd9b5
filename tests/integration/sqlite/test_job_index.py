"""What the job list of the node reads and writes: bounded, by indexes, and only if needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Every
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import (
    JobFilters,
    JobHealth,
    JobQuery,
    JobSort,
    Position,
)
from punctual.engine.ports.rows import JobKey
from punctual.node.sqlite.lists import job_index
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_id,
)

TENANT = "acme"
FEW_ROWS = 50  # rows that one call reads in these tests
OPCODES_PER_COUNT = 10
SLACK_OPCODES = 200  # for statements that read no row in the smaller store
MAX_OPCODES_PER_ROW = 150
FILTERS = {
    "all": JobFilters(),
    "status": JobFilters(status=frozenset({"CANCELLED", "PAUSED"})),
    "type": JobFilters(schedule_type="FUTURE"),
    "name": JobFilters(name="none"),
    "name prefix": JobFilters(name_prefix="none"),
    "text": JobFilters(text="none"),
    "creator": JobFilters(created_by="none"),
    "tag": JobFilters(tags=(("team", "none"),)),
    "tag of all": JobFilters(tags=(("team", "data"),), name_prefix="none"),
    "failing": JobFilters(health=JobHealth.FAILING),
    "late": JobFilters(health=JobHealth.LATE),
    "never ran": JobFilters(health=JobHealth.NEVER_RAN),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    yield store
    store.close()


def fill(store: Store, first: int, last: int) -> None:
    """Create jobs that ran once. Half of them have a next time."""
    numbers = range(first, last)
    with store.transaction():
        store.job_states.put_definitions(
            [
                a_definition_row(an_id(number), name=f"job {number % 97}", tags={"team": "data"})
                for number in numbers
            ]
        )
        states = [
            a_job_state(
                an_id(number),
                schedule=Every(60, NOON),
                next_at=after(number) if number % 2 else None,
                latest_run_id=an_id(number),
            )
            for number in numbers
        ]
        assert all(store.job_states.swap([Swap(state, 0) for state in states]))
        runs = [a_run(an_id(number), RunStatus.SUCCESS, ended_at=NOON) for number in numbers]
        store.history.put_runs([a_row(run.run_id, run.run_id, run=run) for run in runs])


def pages(store: Store, query: JobQuery) -> Iterator[tuple[list[Position], int]]:
    """Yield each page, with the operations of SQLite that it took."""
    count, cursor = 0, None

    def count_operations() -> None:
        nonlocal count
        count += OPCODES_PER_COUNT

    db = store._transaction.db
    for _ in range(2_000):
        count = 0
        db.set_progress_handler(count_operations, OPCODES_PER_COUNT)
        page = store.job_index.page(TENANT, query, 10, cursor, NOON)
        db.set_progress_handler(None, 0)
        yield list(page.positions), count
        cursor = page.next_cursor
        if cursor is None:
            return
    raise AssertionError("the list does not end")


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Collect the statements that SQLite executes."""
    texts: list[str] = []
    store._transaction.db.set_trace_callback(texts.append)
    try:
        yield texts
    finally:
        store._transaction.db.set_trace_callback(None)


@pytest.mark.parametrize("sort", JobSort)
@pytest.mark.parametrize("name", FILTERS)
def test_work_of_a_page_does_not_grow_with_the_number_of_jobs(
    store: Store, monkeypatch: pytest.MonkeyPatch, sort: JobSort, name: str
) -> None:
    for bound in ("MAX_ROWS_IN_ORDER", "MAX_ROWS_SEARCHED", "MAX_HISTORIES_SEARCHED"):
        monkeypatch.setattr(job_index, bound, FEW_ROWS)
    query = JobQuery(FILTERS[name], sort)
    most = []
    for first, last in ((0, 4 * FEW_ROWS), (4 * FEW_ROWS, 16 * FEW_ROWS)):
        fill(store, first, last)
        listed = list(pages(store, query))
        most.append(max(operations for _, operations in listed))
        expected = last if name == "all" else 0
        assert len([position for page, _ in listed for position in page]) == expected
    assert most[1] <= most[0] * 1.25 + SLACK_OPCODES
    assert most[1] < FEW_ROWS * MAX_OPCODES_PER_ROW


@pytest.mark.parametrize("sort", JobSort)
@pytest.mark.parametrize("name", FILTERS)
def test_every_read_follows_an_index(store: Store, sort: JobSort, name: str) -> None:
    fill(store, 0, 20)
    late = a_run("late", due_at=NOON - timedelta(minutes=1))
    state = a_job_state(an_id(100), runs=(late,), latest_run_id="late")
    store.job_states.put_definitions([a_definition_row(an_id(100))])
    store.job_states.swap([Swap(state, 0)])
    with statements(store) as texts:
        list(pages(store, JobQuery(FILTERS[name], sort)))
    reads = [text for text in texts if text.startswith("SELECT")]
    assert reads
    for read in reads:
        plan = store._transaction.db.execute(f"EXPLAIN QUERY PLAN {read}").fetchall()
        steps = [step for *_, step in plan]
        tables = ("heads", "job_list", "job_tags", "runs", "queue", "failures")
        scans = [step for step in steps if step.startswith(tuple(f"SCAN {t}" for t in tables))]
        assert scans == [], (read, steps)
        assert not any("TEMP B-TREE" in step for step in steps), (read, steps)


def writes_of(store: Store, swap: Swap) -> list[str]:
    """Return the first words of the writes of list rows by a swap."""
    with statements(store) as texts:
        assert store.job_states.swap([swap]) == [True]
    listed = [text for text in texts if "job_list" in text or "job_tags" in text]
    return [text.split()[0] for text in listed if not text.startswith("SELECT")]


def changed(state: JobState, **fields: Any) -> JobState:
    version = state.version + 1
    return replace(state, version=version, write_ids=(f"w{version}",), **fields)


def test_only_a_change_of_status_name_or_tags_writes_a_list_row(store: Store) -> None:
    store.job_states.put_definitions(
        [
            a_definition_row(),
            a_definition_row(ref="2-body", edition=2, document={"name": "cleanup", "priority": 1}),
            a_definition_row(ref="3-body", edition=3, name="renamed"),
            a_definition_row(ref="4-body", edition=4, name="renamed", tags={"a": "b"}),
        ]
    )
    state = a_job_state()
    assert writes_of(store, Swap(state, 0)) == ["INSERT"]
    run = a_run()
    steps: list[tuple[dict[str, Any], list[str]]] = [
        ({"runs": (run,), "next_at": after(60)}, []),
        ({"runs": (replace(run, status=RunStatus.RUNNING, token=2),)}, []),
        ({"runs": (), "unrecorded": (replace(run, ended_at=NOON),), "latest_run_id": "r"}, []),
        ({"unrecorded": (), "next_at": None, "updated_at": after(1)}, []),
        ({"rules": {2: Rules("2-body", NOON)}, "definition": 2, "edition": 2}, []),
        ({"rules": {3: Rules("3-body", NOON)}, "definition": 3, "edition": 3}, ["INSERT"]),
        (
            {"rules": {4: Rules("4-body", NOON)}, "definition": 4, "edition": 4},
            ["INSERT", "INSERT"],
        ),
        ({"status": JobStatus.PAUSED}, ["UPDATE"]),
        ({"edition": 9}, []),
    ]
    for fields, expected in steps:
        new = changed(state, **fields)
        assert writes_of(store, Swap(new, state.version)) == expected, fields
        state = new


def test_removed_jobs_leave_no_list_rows(store: Store) -> None:
    fill(store, 0, 3)
    state = store.job_states.load([JobKey(TENANT, an_id(1))])[JobKey(TENANT, an_id(1))].state
    ended = changed(state, status=JobStatus.CANCELLED, ended_at=NOON, next_at=None)
    store.job_states.swap([Swap(ended, 1)])
    store.purge(NOON + HISTORY_RETENTION, 100)
    db = store._transaction.db
    for table in ("job_list", "job_tags"):
        ids = [row[0] for row in db.execute(f"SELECT job_id FROM {table} ORDER BY job_id")]
        assert ids == [an_id(0), an_id(2)]
