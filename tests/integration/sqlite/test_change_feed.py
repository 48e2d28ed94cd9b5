"""The change feed of the node: every commit is in it, and missing changes are a gap."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.job_state import JobStatus, Rules
from punctual.domain.operations.operation import OPERATION_RETENTION, Operation, OperationAction
from punctual.domain.run import RunStatus, WaitingRun
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.change_feed import ChangeFilters, ChangeKind, ChangePage
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries import changes
from punctual.engine.queries.changes import ChangeQueries, ChangesSince
from punctual.engine.queries.slices import finish
from punctual.node.sqlite.lists import change_feed
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
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
    after,
    an_id,
)

ALL = ChangeFilters()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    store = Store.open(tmp_path / "data", clock)
    yield store
    store.close()


def read(
    store: Store, cursor: tuple[str, ...] | None, filters: ChangeFilters = ALL
) -> ChangesSince:
    queries = ChangeQueries(store.changes, store.job_states, store.history)
    return finish(queries.since("acme", cursor, filters, store.changes._clock()))


def create_job(store: Store, job_id: str = JOB, **fields: Any) -> None:
    store.job_states.put_definitions([a_definition_row(job_id)])
    assert store.job_states.swap([Swap(a_job_state(job_id, **fields), 0)]) == [True]


def an_operation() -> Operation:
    return Operation(
        *("acme", an_id(7), OperationAction.PAUSE, {}, 1, NOON, NOON + OPERATION_RETENTION)
    )


def create_job_and_fail(store: Store, job_id: str) -> None:
    with store.transaction():
        create_job(store, job_id)
        raise ZeroDivisionError


def shown(since: ChangesSince) -> list[tuple[str, str, int, str]]:
    return [
        (
            change.kind.value,
            change.run_id or change.job_id,
            change.version,
            "" if change.run is None else change.run.run.status.value,
        )
        for change in since.changes
    ]


def test_changes_of_a_run_come_in_order_with_the_state_after_each(store: Store) -> None:
    cursor = read(store, None).cursor
    create_job(store, runs=(a_run(),))
    running = a_job_state(version=2, runs=(a_run(status=RunStatus.RUNNING, token=2),))
    store.job_states.swap([Swap(running, 1)])
    with store.transaction():
        store.job_states.swap([Swap(a_job_state(version=3), 2)])
        store.history.put_runs([a_row()])
    since = read(store, cursor)
    runs = [entry for entry in shown(since) if entry[0] == "run"]
    assert runs == [
        ("run", RUN, 1, "QUEUED"),
        ("run", RUN, 2, "RUNNING"),
        ("run", RUN, 3, "SUCCESS"),
    ]
    (job,) = [change for change in since.changes if change.kind is ChangeKind.JOB]
    assert job.version == 3
    assert job.job is not None
    assert (job.job.name, job.job.status, job.job.live_run_ids) == (
        "cleanup",
        JobStatus.SCHEDULED,
        (),
    )
    assert shown(read(store, since.cursor)) == []


def test_run_that_was_taken_back_has_no_content(store: Store) -> None:
    create_job(store, runs=(a_run(),))
    cursor = read(store, None).cursor
    store.job_states.swap([Swap(a_job_state(version=2), 1)])
    (change,) = [change for change in read(store, cursor).changes if change.run_id]
    assert (change.run_id, change.version, change.run) == (RUN, 2, None)


def test_occurrence_that_did_not_run_is_in_the_feed(store: Store) -> None:
    create_job(store)
    cursor = read(store, None).cursor
    skipped = a_row(run=a_run(status=RunStatus.SKIPPED, ended_at=NOON))
    with store.transaction():
        store.job_states.swap([Swap(a_job_state(version=2), 1)])
        store.history.put_runs([skipped])
    assert ("run", RUN, 2, "SKIPPED") in shown(read(store, cursor))


def test_pause_changes_the_reason_of_every_waiting_run(store: Store) -> None:
    waiting = tuple(WaitingRun(an_id(number), 1, NOON, NOON, NOON) for number in range(10, 23))
    create_job(store, wait_queue=waiting)
    cursor = read(store, None).cursor
    paused = a_job_state(version=2, status=JobStatus.PAUSED, wait_queue=waiting)
    store.job_states.swap([Swap(paused, 1)])
    reasons = {
        change.run_id: change.run.run.reason
        for change in read(store, cursor).changes
        if change.run is not None
    }
    assert reasons == dict.fromkeys([entry.run_id for entry in waiting], "PAUSED")


def test_live_run_names_its_task_and_its_job(store: Store) -> None:
    cursor = read(store, None).cursor
    rules = {1: Rules(definition_ref="1-body", effective_at=NOON, task_type="http")}
    create_job(store, runs=(a_run(), a_run(an_id(2))), rules=rules)
    rows = [change.run for change in read(store, cursor).changes if change.run is not None]
    assert [(row.task_type, row.label and row.label.name) for row in rows] == [
        ("http", "cleanup")
    ] * 2


def test_only_the_changed_runs_of_a_job_are_in_the_feed(store: Store) -> None:
    runs = tuple(a_run(an_id(number)) for number in range(10, 15))
    create_job(store, runs=runs)
    cursor = read(store, None).cursor
    changed = a_run(an_id(12), RunStatus.RUNNING, token=2)
    kept = (*runs[:2], changed, *runs[3:4])
    store.job_states.swap([Swap(a_job_state(version=2, runs=kept), 1)])
    changes = {entry[1]: entry[3] for entry in shown(read(store, cursor)) if entry[0] == "run"}
    assert changes == {an_id(12): "RUNNING", an_id(14): ""}


def test_rolled_back_change_is_not_in_the_feed(store: Store) -> None:
    cursor = read(store, None).cursor
    with pytest.raises(ZeroDivisionError):
        create_job_and_fail(store, JOB)
    since = read(store, cursor)
    assert (since.changes, since.gap) == ([], False)


def test_blank_state_is_no_change_of_its_tenant(store: Store) -> None:
    cursor = read(store, None).cursor
    store.job_states.swap([Swap(blank_state(JobKey("acme", JOB), 1, "w", NOON), 0)])
    assert read(store, cursor).cursor == cursor


def test_lease_renewal_is_no_change(store: Store) -> None:
    create_job(store)
    cursor = read(store, None).cursor
    store.job_states.load([])
    assert read(store, cursor).cursor == cursor


def test_reader_sees_only_its_tenant(store: Store) -> None:
    cursor = read(store, None).cursor
    other = a_job_state(tenant="other")
    store.job_states.swap([Swap(other, 0)])
    since = read(store, cursor)
    assert since.changes == []
    assert since.cursor == cursor, "it tells nothing of other tenants"


def test_many_changes_of_a_tenant_leave_the_cursors_of_others_valid(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    store.changes._max_bytes = 10_000
    create_job(store)
    cursors = [store.changes.now(tenant, NOON) for tenant in ("acme", "quiet")]
    for version in range(1, 200):
        other = a_job_state(tenant="other", version=version)
        store.job_states.swap([Swap(other, version - 1)])
    for tenant, cursor in zip(("acme", "quiet"), cursors, strict=True):
        assert store.changes.now(tenant, NOON) == cursor
        page = store.changes.read(tenant, cursor, ALL, NOON)
        assert page is not None
        assert page.changes == []
    store.close()


def test_numbers_of_a_tenant_go_on_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    for version in range(1, 4):
        store = Store.open(tmp_path / "data", clock)
        for tenant in ("acme", "other"):
            store.job_states.swap([Swap(a_job_state(tenant=tenant, version=version), version - 1)])
        numbers = [store.changes.now(tenant, NOON)[0] for tenant in ("acme", "other", "none")]
        assert numbers == [str(version), str(version), "0"]
        store.close()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ChangeFilters(job_id=JOB), {("job", JOB), ("run", RUN)}),
        (ChangeFilters(run_id=RUN), {("run", RUN)}),
        (ChangeFilters(kinds=frozenset({ChangeKind.JOB})), {("job", JOB), ("job", an_id(2))}),
        (ChangeFilters(job_id=an_id(3)), set()),
        (
            ChangeFilters(kinds=frozenset({ChangeKind.OPERATION})),
            {("operation", "")},
        ),
    ],
)
def test_filters_choose_changes(
    store: Store, filters: ChangeFilters, expected: set[tuple[str, str]]
) -> None:
    cursor = read(store, None).cursor
    create_job(store, runs=(a_run(),))
    create_job(store, an_id(2))
    with store.transaction():
        store.changes.add_operation(an_operation())
    changes = read(store, cursor, filters).changes
    assert {(change.kind.value, change.run_id or change.job_id) for change in changes} == expected


def test_cursor_after_24_hours_is_a_gap(store: Store, clock: ManualClock) -> None:
    cursor = read(store, None).cursor
    create_job(store)
    clock.now = NOON + timedelta(hours=24)
    assert not read(store, cursor).gap
    clock.now = NOON + timedelta(hours=24, seconds=1)
    since = read(store, cursor)
    assert since.gap
    assert not read(store, since.cursor).gap


def test_expired_rows_are_removed_but_never_the_newest(store: Store, clock: ManualClock) -> None:
    cursor = read(store, None).cursor
    create_job(store)
    create_job(store, an_id(2))
    second = read(store, None).cursor
    clock.now = NOON + timedelta(hours=23)
    fresh = read(store, second).cursor
    clock.now = NOON + timedelta(hours=25)
    store.purge(clock.now, 100)
    assert read(store, cursor).gap
    assert not read(store, fresh).gap
    create_job(store, an_id(3))
    assert [entry[1] for entry in shown(read(store, fresh))] == [an_id(3)]


def test_cursor_of_another_database_is_a_gap(store: Store, tmp_path: Path) -> None:
    create_job(store)
    cursor = read(store, None).cursor
    other = Store.open(tmp_path / "other", ManualClock(after(5)))
    create_job(other)
    create_job(other, an_id(2))
    assert read(other, cursor).gap
    other.close()


@pytest.mark.parametrize("cursor", [("9", "0", "0"), ("x",), ("-1", "0", "0"), ("9" * 30,) * 3])
def test_unknown_cursor_is_a_gap(store: Store, cursor: tuple[str, ...]) -> None:
    assert read(store, cursor).gap


def test_size_of_the_feed_is_bounded_and_the_rest_is_a_gap(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    store.changes._max_bytes = 10_000
    cursor = read(store, None).cursor
    create_job(store)
    for version in range(2, 200):
        store.job_states.swap([Swap(a_job_state(version=version), version - 1)])
    (row_count, size) = store._db.execute(
        "SELECT count(*), sum(length(changes)) FROM changes"
    ).fetchone()
    assert row_count < 60
    assert size < 10_000
    assert read(store, cursor).gap
    store.close()


def test_long_page_goes_on_from_its_cursor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "CHANGES_PER_READ", 2)
    monkeypatch.setattr(changes, "MAX_CHANGES_PER_ANSWER", 3)
    cursor = read(store, None).cursor
    for number in range(10, 20):
        create_job(store, an_id(number))
    seen: list[str] = []
    for _ in range(10):
        since = read(store, cursor)
        seen += [change.job_id for change in since.changes]
        cursor = since.cursor
        if not since.has_more:
            break
    assert seen == [an_id(number) for number in range(10, 20)]


def test_filtered_read_of_a_long_feed_stops_at_a_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "MAX_READ_BYTES", 100)
    cursor = store.changes.now("acme", NOON)
    for number in range(10, 20):
        create_job(store, an_id(number))
    page = store.changes.read("acme", cursor, ChangeFilters(job_id=an_id(19)), NOON)
    assert page is not None
    assert (page.changes, page.has_more) == ([], True)


def test_unreadable_row_is_a_gap(store: Store) -> None:
    cursor = read(store, None).cursor
    create_job(store)
    store._db.execute("UPDATE changes SET changes = x'00'")
    assert read(store, cursor).gap
    assert store.warnings()


def test_commit_reports_the_changed_jobs_by_tenant(store: Store) -> None:
    reported: list[tuple[str, int, list[str]]] = []

    def report(tenant: str, last_row: int, items: Sequence[Sequence[Any]]) -> None:
        reported.append((tenant, last_row, [item[0] for item in items]))

    store.changes.on_change = report
    create_job(store)
    with pytest.raises(ZeroDivisionError):
        create_job_and_fail(store, an_id(2))
    assert reported == [("acme", 1, [JOB])]


def test_next_read_of_a_complete_page_may_pause(store: Store) -> None:
    feed: SqliteChangeFeed = store.changes
    assert feed.seconds_to_next_read("acme", ChangePage((), ("0",)), NOON) == 3
    assert feed.seconds_to_next_read("acme", ChangePage((), ("0",), True), NOON) == 0
