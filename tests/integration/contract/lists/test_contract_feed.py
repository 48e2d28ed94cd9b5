"""The port of the change feed: each change comes after the cursor, in order, and gaps are said."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.job_state import JobStatus
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.lists import change_feed
from punctual.engine.ports.lists.change_feed import Change, ChangeFilters, ChangeKind
from punctual.engine.queries.slices import finish
from tests.support.builders import (
    JOB,
    NOON,
    RUN,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    an_id,
)
from tests.support.list_plays.list_worlds import ListWorld

ALL = ChangeFilters()
SETTLED = timedelta(seconds=30)  # after which a reader has every earlier change
MAX_READS = 200
OTHER_JOB = an_id(50)
WRONG_CURSORS: Sequence[tuple[str, ...]] = (
    ("",),
    ("x",),
    ("-1", "2", "3", "4"),
    ("é", "é"),
    ("2026-03-02", "a" * 11),
)


def store(lists: ListWorld, state: Any, *ended: Run) -> None:
    lists.put_definitions([a_definition_row(state.job_id, tenant=state.tenant)])
    lists.clock.now += timedelta(milliseconds=200)
    lists.change(state, [a_row(run.run_id, state.job_id, state.tenant, run=run) for run in ended])


def begin(lists: ListWorld) -> tuple[str, ...]:
    """Return the cursor of now. Earlier changes are settled, so none of them comes again."""
    lists.clock.now += SETTLED
    return lists.change_feed.now("acme", lists.clock())


def follow(
    lists: ListWorld, cursor: tuple[str, ...], filters: ChangeFilters = ALL, tenant: str = "acme"
) -> tuple[list[Change], tuple[str, ...]]:
    """Read until nothing more comes. Return all changes with their content, and the cursor."""
    changes: list[Change] = []
    for _ in range(MAX_READS):
        since = finish(lists.queries.since(tenant, cursor, filters, lists.clock()))
        assert not since.gap
        changes += since.changes
        cursor = since.cursor
        if not since.has_more:
            return changes, cursor
    raise AssertionError("the feed does not end")


def distinct(changes: Sequence[Change]) -> list[tuple[str, str, int]]:
    """Return kind, id and version of each change. One change may come twice."""
    return list(
        dict.fromkeys(
            (change.kind.value, change.run_id or change.job_id, change.version)
            for change in changes
        )
    )


def run_statuses(changes: Sequence[Change], run_id: str = RUN) -> list[str]:
    statuses = [
        "" if change.run is None else change.run.run.status.value
        for change in changes
        if change.run_id == run_id
    ]
    return list(dict.fromkeys(statuses))


def test_changes_of_a_run_come_in_order_with_their_content(lists: ListWorld) -> None:
    cursor = begin(lists)
    store(lists, a_job_state(runs=(a_run(),)))
    store(lists, a_job_state(version=2, runs=(a_run(status=RunStatus.RUNNING, token=2),)))
    ended = a_run(RUN, RunStatus.SUCCESS, ended_at=NOON, token=2)
    store(lists, a_job_state(version=3, unrecorded=(ended,)), ended)
    changes, cursor = follow(lists, cursor)
    assert run_statuses(changes) == ["QUEUED", "RUNNING", "SUCCESS"]
    jobs = [change for change in changes if change.kind is ChangeKind.JOB]
    assert jobs[-1].job is not None
    assert (jobs[-1].job.name, jobs[-1].job.status) == ("cleanup", JobStatus.SCHEDULED)
    lists.clock.now += SETTLED
    assert follow(lists, cursor)[0] == []


def test_change_after_each_read_comes_with_the_next(lists: ListWorld) -> None:
    cursor = begin(lists)
    for version, status in enumerate((JobStatus.SCHEDULED, JobStatus.PAUSED), start=1):
        store(lists, a_job_state(version=version, edition=version, status=status))
        changes, cursor = follow(lists, cursor)
        assert [change.job.status for change in changes if change.job][-1] is status


def test_run_that_was_taken_back_has_no_content(lists: ListWorld) -> None:
    store(lists, a_job_state(runs=(a_run(),)))
    cursor = begin(lists)
    store(lists, a_job_state(version=2))
    changes, _ = follow(lists, cursor)
    assert run_statuses(changes) == [""]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ChangeFilters(job_id=JOB), {("job", JOB), ("run", RUN)}),
        (ChangeFilters(run_id=RUN), {("run", RUN)}),
        (ChangeFilters(kinds=frozenset({ChangeKind.JOB})), {("job", JOB), ("job", OTHER_JOB)}),
        (ChangeFilters(kinds=frozenset({ChangeKind.RUN})), {("run", RUN)}),
        (ChangeFilters(job_id=an_id(3)), set()),
    ],
)
def test_filters_choose_changes(
    lists: ListWorld, filters: ChangeFilters, expected: set[tuple[str, str]]
) -> None:
    cursor = begin(lists)
    store(lists, a_job_state(runs=(a_run(),)))
    store(lists, a_job_state(OTHER_JOB))
    changes, _ = follow(lists, cursor, filters)
    assert {entry[:2] for entry in distinct(changes)} == expected


def test_reader_sees_only_its_tenant(lists: ListWorld) -> None:
    cursor = begin(lists)
    store(lists, a_job_state(tenant="acme2", runs=(a_run(),)))
    assert follow(lists, cursor)[0] == []
    assert distinct(follow(lists, cursor, tenant="acme2")[0]) != []


def test_cursor_of_now_does_not_need_a_change_before(lists: ListWorld) -> None:
    cursor = begin(lists)
    assert follow(lists, cursor)[0] == []


def test_cursor_older_than_the_retention_is_a_gap(lists: ListWorld) -> None:
    cursor = begin(lists)
    store(lists, a_job_state())
    lists.clock.now += change_feed.CHANGE_RETENTION - SETTLED
    follow(lists, cursor)
    lists.clock.now += 2 * SETTLED
    since = finish(lists.queries.since("acme", cursor, ALL, lists.clock()))
    assert since.gap
    assert follow(lists, since.cursor)[0] == []


@pytest.mark.parametrize("cursor", WRONG_CURSORS, ids=str)
def test_cursor_that_no_feed_has_made_is_a_gap(lists: ListWorld, cursor: tuple[str, ...]) -> None:
    store(lists, a_job_state())
    since = finish(lists.queries.since("acme", cursor, ALL, lists.clock()))
    assert since.gap
    assert since.changes == ()


def test_reader_of_many_changes_misses_none(lists: ListWorld) -> None:
    cursor = begin(lists)
    job_ids = [an_id(100 + number) for number in range(20)]
    run_ids = [an_id(1_000 + number) for number in range(40)]
    for job_id in job_ids:
        runs = tuple(a_run(run_id) for run_id in run_ids)
        store(lists, a_job_state(job_id, runs=runs))
    changes, cursor = follow(lists, cursor)
    lists.clock.now += SETTLED
    changes += follow(lists, cursor)[0]
    seen = {(change.job_id, change.run_id) for change in changes}
    assert seen == {(job_id, run_id) for job_id in job_ids for run_id in ("", *run_ids)}
