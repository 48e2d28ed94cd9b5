"""A page of the list over all jobs reads a bounded part of the node's database, by its indexes."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from bench.run_lists import FILTERS, NOON, TENANT, fill
from punctual.domain.utc import MILLISECOND
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.ports.rows import Page
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.engine.queries.slices import finish
from punctual.node.sqlite.lists.run_pages import (
    MAX_LABELLED_ROWS_READ,
    MAX_RUN_ROWS_READ,
    find_rows,
)
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock

JOBS, RUNS = 2_000, 30_000
INSTRUCTIONS_PER_CALL = 100  # of the virtual machine of SQLite
# A row that is read in order takes about 35 instructions, and 70 if its job is looked up.
MAX_INSTRUCTIONS = 45 * MAX_RUN_ROWS_READ
FEW_INSTRUCTIONS = 20_000
INDEXED = {
    "none",
    "status of 2 %",
    "status of none",
    "status of nearly all",
    "reason of few",
    "reason of none",
    "name of few jobs",
    "name of most jobs",
    "name of none",
    "name of few, status of none",
    "name of most, status of none",
    "tag of half",
    "tag of none",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(tmp_path_factory.mktemp("runs") / "data", ManualClock(NOON))
    fill(store, JOBS, RUNS)
    yield store
    store.close()


class Counter:
    """Counts the instructions that the database carries out."""

    def __init__(self, store: Store) -> None:
        self._db = store.transaction().db
        self.instructions = 0

    def __enter__(self) -> "Counter":
        self._db.set_progress_handler(self._count, INSTRUCTIONS_PER_CALL)
        return self

    def __exit__(self, *_: Any) -> None:
        self._db.set_progress_handler(None, 0)

    def _count(self) -> int:
        self.instructions += INSTRUCTIONS_PER_CALL
        return 0


def page_of(store: Store, filters: RunFilters, limit: int = 50, after: Any = None) -> Page:
    merged = MergedRuns(store.job_states, store.history)
    return finish(merged.page(TENANT, filters, limit, after, NOON))


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_page_reads_a_bounded_part_of_the_database(store: Store, name: str) -> None:
    with Counter(store) as counter:
        page_of(store, FILTERS[name])
    most = FEW_INSTRUCTIONS if name in INDEXED else MAX_INSTRUCTIONS
    assert counter.instructions <= most, counter.instructions


@pytest.mark.parametrize(
    ("name", "max_rows"),
    [
        ("duration of none", MAX_RUN_ROWS_READ),
        ("tag of half, duration of none", MAX_LABELLED_ROWS_READ),
    ],
)
def test_filter_without_matches_ends_after_pages_of_bounded_length(
    store: Store, name: str, max_rows: int
) -> None:
    after, pages = None, 0
    for _ in range(2 * RUNS // max_rows):
        page = page_of(store, FILTERS[name], after=after)
        after, pages = page.next_cursor, pages + 1
        assert list(page.items) == []
        if after is None:
            break
    assert (after, pages) == (None, RUNS // max_rows + 1)


@pytest.mark.parametrize("limit", [3, 50])
@pytest.mark.parametrize("name", ["reason of few", "name of few jobs", "duration of few"])
def test_pages_of_a_filter_have_each_run_once(store: Store, name: str, limit: int) -> None:
    found: list[tuple[str, str]] = []
    after = None
    for _ in range(1_000):
        page = page_of(store, FILTERS[name], limit, after)
        found += [(view.run.run_id, view.job_id) for view in page.items]
        after = page.next_cursor
        if after is None:
            break
    expected = {"reason of few": 1, "name of few jobs": RUNS // 1_000, "duration of few": 1}[name]
    assert len(found) == len(set(found)) == expected
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (RunFilters(frozenset({"FAILED", "MISSED"})), "runs_not_succeeded (tenant=? AND status=?"),
        (RunFilters(reasons=frozenset({"LOST", "POISON"})), "runs_with_reason (tenant=? AND rea"),
    ],
)
def test_runs_that_did_not_succeed_are_read_from_an_index_of_their_own(
    store: Store, filters: RunFilters, index: str
) -> None:
    db = store.transaction().db
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    find_rows(db, TENANT, filters, None, 50, NOON)
    db.set_trace_callback(None)
    plans = [
        detail
        for statement in statements
        for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    searches = [plan for plan in plans if "runs" in plan]
    assert len(searches) == 2
    assert all(f"USING INDEX {index}" in plan for plan in searches)


def test_time_of_the_end_is_compared_before_a_row_is_decoded(store: Store) -> None:
    """The last runs ended after the first, and a row names its end by its expiry."""
    last_at = NOON + (RUNS - 100) * 20 * MILLISECOND
    filters = RunFilters(start=last_at, time_field=TimeField.ENDED)
    found = find_rows(store.transaction().db, TENANT, filters, None, 1_000, NOON)
    assert 100 <= len(found.row_ids) <= 200
    past = RunFilters(end=NOON - timedelta(days=1), time_field=TimeField.ENDED)
    assert find_rows(store.transaction().db, TENANT, past, None, 1_000, NOON).row_ids == []
