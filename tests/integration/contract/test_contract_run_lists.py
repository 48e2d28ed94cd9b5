"""Filtered lists of runs: complete, without duplicates, and bounded by what ids prove."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace as msgspec_replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import derived_id, occurrence_id
from punctual.domain.job_state import Rules
from punctual.domain.run import NOT_RUN_STATUSES, Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.utc import EPOCH
from punctual.engine.commands.backfill import backfill_id
from punctual.engine.ports.job_states import ActiveStates, Swap
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.ports.rows import JobLabel, RunRow
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.engine.queries.runs.run_list import (
    FILTERED_PAGE_SIZE,
    MAX_PAGES_READ,
    UNINDEXED_PAGE_SIZE,
)
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from tests.support.aws.adapters import ADAPTERS, World
from tests.support.builders import (
    JOB,
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    an_id,
)
from tests.support.ports import Ports, job_queries

HOUR = timedelta(hours=1)
BEGIN = NOON - 500 * HOUR
OTHER = an_id(2)
ENDED = (
    RunStatus.SUCCESS,
    RunStatus.SUCCESS,
    RunStatus.FAILED,
    RunStatus.CANCELLED,
    RunStatus.MISSED,
)
SKIPPED = frozenset({RunStatus.SKIPPED.value})
LABELS = {
    JOB: JobLabel("nightly", {"team": "data"}),
    OTHER: JobLabel("hourly", {"team": "data", "env": "prod"}),
}
SECONDS = timedelta(seconds=1)
# Filters of runs, and filters that the job decides.
RUN_FILTERS = (
    RunFilters(reasons=frozenset({"LOST"})),
    RunFilters(reasons=frozenset({"LOST", "OVERLAP"}), status=SKIPPED),
    RunFilters(reasons=frozenset({"POISON"})),
    RunFilters(min_duration=45 * SECONDS),
    RunFilters(max_duration=2 * SECONDS, trigger="SCHEDULE"),
    RunFilters(min_duration=10 * SECONDS, max_duration=10 * SECONDS),
    RunFilters(min_duration=HOUR),
    RunFilters(frozenset({"FAILED"}), min_duration=30 * SECONDS, start=NOON - 200 * HOUR),
)
JOB_FILTERS = (
    RunFilters(job_name="nightly"),
    RunFilters(job_name="hourly", status=SKIPPED),
    RunFilters(job_name="night"),
    RunFilters(tags=(("team", "data"),), reasons=frozenset({"LOST"})),
    RunFilters(tags=(("env", "prod"), ("team", "data"))),
    RunFilters(tags=(("env", "dev"),)),
    RunFilters(job_name="nightly", tags=(("env", "prod"),)),
    RunFilters(job_name="hourly", max_duration=5 * SECONDS, end=NOON - 100 * HOUR),
)


def a_ledger(job_id: str, dice: Random) -> list[Run]:
    """Return three weeks of an hourly schedule, with requested runs of all kinds.

    A requested run has an id up to a day older than its time.
    """
    runs: list[Run] = []
    at = BEGIN
    while at < NOON:
        stretch = dice.choice([*[1] * 20, dice.randrange(2, 100)])
        last = at + (stretch - 1) * HOUR
        bulk: dict[str, Any] = {"occurrence_count": stretch, "last_at": last} if stretch > 1 else {}
        status = RunStatus.SKIPPED if bulk else dice.choice(ENDED)
        runs.append(a_run(occurrence_id(job_id, at), status, scheduled_at=at, **bulk))
        at = last + HOUR
        if dice.random() < 0.3:
            runs.append(_requested_run(job_id, at, dice))
    return runs


def _requested_run(job_id: str, at: datetime, dice: Random) -> Run:
    trigger = dice.choice([Trigger.RUN_NOW, Trigger.RETRY, Trigger.BACKFILL])
    requested_at = at - timedelta(seconds=dice.choice([0, 0, 60, 86_400]))
    run_id = derived_id(requested_at, job_id, str(dice.random()))
    scheduled_at = at
    if trigger is Trigger.RETRY:
        scheduled_at = requested_at - dice.randrange(400) * HOUR
    elif trigger is Trigger.BACKFILL:
        scheduled_at = at - dice.randrange(100) * HOUR
        run_id = backfill_id(job_id, scheduled_at, dice.randrange(1_000_000))
    return a_run(run_id, dice.choice(ENDED), scheduled_at=scheduled_at, trigger=trigger)


@pytest.fixture
def stored_rows(ports: Ports) -> list[RunRow]:
    dice = Random(7)
    rows = [
        an_ended_row(job_id, with_times(run))
        for job_id in (JOB, OTHER)
        for run in a_ledger(job_id, dice)
    ]
    for job_id in (JOB, OTHER):
        label = LABELS[job_id]
        definition = a_definition_row(job_id, name=label.name, tags=label.tags)
        ports.job_states.put_definitions([definition])
        assert ports.job_states.swap([Swap(a_job_state(job_id), 0)]) == [True]
    ports.history.put_runs(rows)
    return rows


def an_ended_row(job_id: str, run: Run) -> RunRow:
    """Return a row with the product's retention. In lists of AWS it carries the label."""
    assert run.ended_at is not None
    expires_at = run.ended_at + HISTORY_RETENTION
    return a_row(run.run_id, job_id, run=run, expires_at=expires_at, label=LABELS[job_id])


def with_times(run: Run) -> Run:
    """Add a start and an end up to four days after the time of the id. Some never start.

    A run that failed or was cancelled has a reason, and one that ran a duration of up to 49 s.
    """
    created_at = EPOCH + timedelta(milliseconds=int(run.run_id.replace("-", "")[:12], 16))
    started = created_at + timedelta(minutes=int(run.run_id[-4:], 16) % 6_000)
    ran = run.status not in (*NOT_RUN_STATUSES, RunStatus.CANCELLED)
    ended = started + timedelta(seconds=int(run.run_id[-2:], 16) % 50)
    started_at = started if ran else None
    fields: dict[str, Any] = {
        "started_at": started_at,
        "attempt_at": started_at,
        "ended_at": ended,
    }
    if run.status not in (RunStatus.SUCCESS, RunStatus.MISSED):
        fields |= {"reason": Reason.LOST if ran else Reason.OVERLAP}
    return a_run(**{name: getattr(run, name) for name in run.__struct_fields__} | fields)


class CountingHistory:
    """A history that records how many rows each page has."""

    def __init__(self, history: Any) -> None:
        self._history = history
        self.page_sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._history, name)

    def page(self, *args: Any) -> Any:
        return self._note(self._history.page(*args))

    def page_all(self, *args: Any) -> Any:
        page = self._history.page_all(*args)
        self._note(page.rows)
        return page

    def _note(self, rows: Sequence[RunRow]) -> Sequence[RunRow]:
        self.page_sizes.append(len(rows))
        return rows


@pytest.fixture(params=[name for name in sorted(ADAPTERS) if name != "aws"])
def merging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world with a list of all runs that is merged from job states and history."""
    with ADAPTERS[request.param](tmp_path, ManualClock(NOON)) as world:
        assert world.merges_runs
        yield world


def a_search(world: World) -> tuple[JobQueries, CountingHistory]:
    counting = CountingHistory(world.ports.history)
    ports = replace(world.ports, history=cast(Any, counting))
    if world.merges_runs:
        job_states = cast(ActiveStates, world.ports.job_states)
        ports = replace(ports, run_index=MergedRuns(job_states, cast(Any, counting)))
    return job_queries(ports, world.clock, cast(Any, None)), counting


def list_all(
    search: JobQueries, job_id: str | None, filters: RunFilters, limit: int
) -> Iterator[RunView]:
    after: tuple[str, ...] | None = None
    while True:
        page = finish(search.runs("acme", job_id, filters, limit, after))
        assert len(page.items) <= limit
        yield from page.items
        if page.next_cursor is None:
            return
        assert after is None or page.next_cursor < after
        after = page.next_cursor


STATUSES = (frozenset[str](), frozenset({"SUCCESS"}), frozenset({"FAILED", "MISSED"}), SKIPPED)
TRIGGERS = ("", *(trigger.value for trigger in Trigger))
FROM = (None, BEGIN + 61.5 * HOUR, NOON - 100 * HOUR, NOON - 3 * HOUR)
TO = (None, BEGIN + 90 * HOUR, NOON)
FILTER_ARGUMENTS = [
    *Random(1).sample(list(product(STATUSES, TRIGGERS, FROM, TO, [TimeField.SCHEDULED])), 25),
    *Random(2).sample(
        list(product(STATUSES, TRIGGERS, FROM, TO, [TimeField.STARTED, TimeField.ENDED])), 12
    ),
]


def boundary_filters(rows: Sequence[RunRow]) -> Iterator[RunFilters]:
    """Yield filters that start at the last time of an entry of many occurrences."""
    for row in rows:
        if row.run.occurrence_count > 40 and row.run.last_at is not None:
            yield RunFilters(start=row.run.last_at)
            yield RunFilters(SKIPPED, start=row.run.last_at, end=NOON)


@pytest.mark.parametrize("job_id", [JOB, None], ids=["one job", "all jobs"])
def test_filters_by_time_return_all_matching_runs(
    world: World, stored_rows: list[RunRow], job_id: str | None
) -> None:
    search, _ = a_search(world)
    world.settle()
    for number, filters in enumerate(
        [RunFilters(*arguments) for arguments in FILTER_ARGUMENTS]
        + [*boundary_filters(stored_rows)]
    ):
        matching = [
            row for row in stored_rows if job_id in (None, row.job_id) and filters.matches(row.run)
        ]
        expected = sorted(((row.run.run_id, row.job_id) for row in matching), reverse=True)
        limit = (1, 7)[number % 2] if len(expected) < 10 else (37, 50, 200)[number % 3]
        run_ids = [(v.run.run_id, v.job_id) for v in list_all(search, job_id, filters, limit)]
        assert run_ids == expected, filters


@pytest.mark.parametrize("limit", [1, 50])
def test_filters_by_reason_duration_and_job_return_all_matching_runs(
    world: World, stored_rows: list[RunRow], limit: int
) -> None:
    search, _ = a_search(world)
    world.settle()
    found = 0
    for filters in (*RUN_FILTERS, *JOB_FILTERS):
        expected = sorted(
            [
                (row.run.run_id, row.job_id)
                for row in stored_rows
                if filters.matches(row.run, LABELS[row.job_id])
            ],
            reverse=True,
        )
        if limit == 1:
            page = finish(search.runs("acme", None, filters, limit, None))
            views = page.items
            assert len(views) <= 1
            assert [(v.run.run_id, v.job_id) for v in views] == expected[: len(views)], filters
            continue
        views = list(list_all(search, None, filters, limit))
        assert [(v.run.run_id, v.job_id) for v in views] == expected, filters
        found += len(views)
        if filters in RUN_FILTERS:
            of_job = [v.run.run_id for v in list_all(search, JOB, filters, limit)]
            assert of_job == [run_id for run_id, job_id in expected if job_id == JOB], filters
    assert limit == 1 or found > 300


def test_filter_by_job_finds_live_runs_and_follows_a_new_name(merging: World) -> None:
    ports = merging.ports
    live_run = a_run(an_id(9), RunStatus.WAITING, reason=Reason.BACKOFF)
    ports.job_states.put_definitions([a_definition_row(JOB, name="old", tags={"a": "b"})])
    state = a_job_state(JOB, runs=(live_run,))
    assert ports.job_states.swap([Swap(state, 0)]) == [True]
    ports.history.put_runs([a_row(an_id(8), JOB)])
    search, _ = a_search(merging)

    def found(filters: RunFilters) -> list[str]:
        return [view.run.run_id for view in list_all(search, None, filters, 10)]

    assert found(RunFilters(job_name="old")) == [an_id(9), an_id(8)]
    assert found(RunFilters(tags=(("a", "b"),), reasons=frozenset({"BACKOFF"}))) == [an_id(9)]
    rules = {**state.rules, 2: Rules("2-body", NOON)}
    ports.job_states.put_definitions([a_definition_row(JOB, "2-body", name="new", edition=2)])
    renamed = msgspec_replace(state, version=2, edition=2, definition=2, rules=rules)
    assert ports.job_states.swap([Swap(renamed, 1)]) == [True]
    assert found(RunFilters(job_name="new")) == [an_id(9), an_id(8)]
    assert found(RunFilters(job_name="old")) == found(RunFilters(tags=(("a", "b"),))) == []


def test_filter_by_start_or_end_uses_the_time_of_the_run(
    world: World, stored_rows: list[RunRow]
) -> None:
    search, _ = a_search(world)
    low, high = NOON - 200 * HOUR, NOON - 100 * HOUR
    for by, field in ((TimeField.STARTED, "started_at"), (TimeField.ENDED, "ended_at")):
        filters = RunFilters(start=low, end=high, time_field=by)
        run_ids = {view.run.run_id for view in list_all(search, JOB, filters, 50)}
        times = {
            row.run.run_id: getattr(row.run, field) for row in stored_rows if row.job_id == JOB
        }
        expected = {run_id for run_id, at in times.items() if at is not None and low <= at < high}
        assert run_ids == expected
        assert 20 < len(run_ids) < len(times)


def test_filter_by_start_time_reads_one_large_page(world: World) -> None:
    store_hourly_runs(world.ports, UNINDEXED_PAGE_SIZE + 1)
    world.settle()
    search, counting = a_search(world)
    page = finish(
        search.runs("acme", JOB, RunFilters(start=NOON, time_field=TimeField.STARTED), 1, None)
    )
    assert (page.items, page.next_cursor, counting.page_sizes) == (
        [],
        None,
        [UNINDEXED_PAGE_SIZE, 1],
    )
    counting.page_sizes.clear()
    page = finish(
        search.runs(
            "acme", JOB, RunFilters(end=NOON - 300 * HOUR, time_field=TimeField.ENDED), 1, None
        )
    )
    assert [view.run.ended_at for view in page.items] == [NOON - 301 * HOUR]
    assert counting.page_sizes == [FILTERED_PAGE_SIZE]


def store_hourly_runs(ports: Ports, count: int) -> None:
    """Store a successful run for each of the last `count` hours."""
    ports.job_states.put_definitions([a_definition_row()])
    assert ports.job_states.swap([Swap(a_job_state(), 0)]) == [True]
    run_times = [NOON - n * HOUR for n in range(count)]
    ports.history.put_runs(
        [
            a_row(
                occurrence_id(JOB, at),
                run=a_run(occurrence_id(JOB, at), RunStatus.SUCCESS, scheduled_at=at, ended_at=at),
            )
            for at in run_times
        ]
    )


@pytest.mark.parametrize("limit", [1, 50])
def test_list_with_a_start_stops_where_ids_prove_its_end(world: World, limit: int) -> None:
    """One answer without a token, not many short pages to the end of the history."""
    store_hourly_runs(world.ports, 400)
    world.settle()
    search, counting = a_search(world)
    tomorrow = RunFilters(start=NOON + 24 * HOUR)
    page = finish(search.runs("acme", JOB, tomorrow, limit, None))
    assert (page.items, page.next_cursor, counting.page_sizes) == ([], None, [FILTERED_PAGE_SIZE])
    counting.page_sizes.clear()
    good = RunFilters(frozenset({"SUCCESS"}), start=NOON + 24 * HOUR)
    for job_id in (JOB, None):
        page = finish(search.runs("acme", job_id, good, limit, None))
        assert (page.items, page.next_cursor) == ([], None)
    # A job's list reads runs of the day by which the id of a requested run may be older.
    assert counting.page_sizes[0] <= 2
    assert counting.page_sizes[1:] == ([FILTERED_PAGE_SIZE] if world.merges_runs else [])


def test_list_of_all_jobs_with_a_start_reads_large_pages_for_long_entries(
    merging: World,
) -> None:
    """An entry of many occurrences may begin at any time. Other runs cannot follow."""
    store_hourly_runs(merging.ports, 400)
    search, counting = a_search(merging)
    page = finish(search.runs("acme", None, RunFilters(start=NOON + 24 * HOUR), 1, None))
    assert (page.items, page.next_cursor, counting.page_sizes) == (
        [],
        None,
        [FILTERED_PAGE_SIZE, 400 - FILTERED_PAGE_SIZE],
    )
    assert 400 - FILTERED_PAGE_SIZE < UNINDEXED_PAGE_SIZE


def test_list_of_all_jobs_reads_at_most_one_large_page_an_answer(merging: World) -> None:
    store_hourly_runs(merging.ports, FILTERED_PAGE_SIZE + 2 * UNINDEXED_PAGE_SIZE + 1)
    search, counting = a_search(merging)
    tomorrow = RunFilters(start=NOON + 24 * HOUR)
    page = finish(search.runs("acme", None, tomorrow, 1, None))
    answers = [list(counting.page_sizes)]
    while page.next_cursor is not None:
        assert page.items == []
        counting.page_sizes.clear()
        page = finish(search.runs("acme", None, tomorrow, 1, page.next_cursor))
        answers.append(list(counting.page_sizes))
    assert answers == [[FILTERED_PAGE_SIZE, UNINDEXED_PAGE_SIZE], [UNINDEXED_PAGE_SIZE], [1]]


def test_list_with_an_end_begins_there(world: World) -> None:
    store_hourly_runs(world.ports, 400)
    world.settle()
    search, counting = a_search(world)
    filters = RunFilters(trigger="SCHEDULE", end=NOON - 300 * HOUR)
    for job_id in (JOB, None):
        page = finish(search.runs("acme", job_id, filters, 3, None))
        assert [v.run.scheduled_at for v in page.items] == [
            NOON - n * HOUR for n in (301, 302, 303)
        ]
    assert counting.page_sizes == [FILTERED_PAGE_SIZE] * (2 if world.merges_runs else 1)


def test_filter_without_matches_reads_a_bounded_number_of_pages(world: World) -> None:
    store_hourly_runs(world.ports, 400)
    world.settle()
    search, counting = a_search(world)
    nothing = RunFilters(frozenset({"TIMED_OUT"}))
    page = finish(search.runs("acme", JOB, nothing, 1, None))
    assert page.items == []
    assert page.next_cursor is not None
    assert counting.page_sizes == [FILTERED_PAGE_SIZE] * MAX_PAGES_READ
    answers = 1
    while page.next_cursor is not None:
        page = finish(search.runs("acme", JOB, nothing, 1, page.next_cursor))
        answers += 1
    assert answers == 2


def test_listed_runs_name_their_job_and_the_task_of_their_time(world: World) -> None:
    ports = world.ports
    rules = {1: Rules("1", NOON, "http"), 2: Rules("2", NOON, "script")}
    live_run = a_run(an_id(9), RunStatus.QUEUED, definition=2, due_at=NOON)
    ports.job_states.put_definitions([a_definition_row(JOB, name="nightly", ref="2")])
    state = a_job_state(JOB, rules=rules, definition=2, runs=(live_run,))
    assert ports.job_states.swap([Swap(state, 0)]) == [True]
    row = a_row(an_id(8), JOB, task_type="http")
    ports.history.put_runs([row])
    world.settle()
    search, _ = a_search(world)
    for job_id in (None, JOB):
        views = list_all(search, job_id, RunFilters(), 10)
        shown = [(view.run.run_id, view.task_type, view.label) for view in views]
        assert [values[:2] for values in shown] == [(an_id(9), "script"), (an_id(8), "http")]
        assert {label.name for *_, label in shown if label} == {"nightly"}
    assert search.run("acme", JOB, an_id(8)).label == JobLabel("nightly")


def test_run_of_a_job_without_a_readable_state_has_no_name(world: World) -> None:
    row = a_row(an_id(8), an_id(77))
    world.ports.history.put_runs([row])
    world.settle()
    search, _ = a_search(world)
    (view,) = list_all(search, None, RunFilters(), 10)
    assert view.label is None


def test_list_of_all_jobs_has_live_waiting_and_unrecorded_runs(world: World) -> None:
    """A run fired ahead is listed from its due time on. Other tenants see nothing."""
    ports = world.ports
    ended = a_run(an_id(13), RunStatus.SUCCESS, ended_at=NOON)
    early = a_run(an_id(14), due_at=NOON + HOUR)
    waiting = WaitingRun(an_id(12), 1, NOON, NOON, NOON)
    states = [
        a_job_state(an_id(1), runs=(a_run(an_id(11), RunStatus.RUNNING, token=1),)),
        a_job_state(an_id(2), wait_queue=(waiting,)),
        a_job_state(an_id(3), unrecorded=(ended,)),
        a_job_state(an_id(4), runs=(early,)),
        a_job_state(an_id(5)),
        a_job_state(an_id(6), tenant="other", runs=(a_run(an_id(16)),)),
    ]
    ports.job_states.put_definitions([a_definition_row(state.job_id) for state in states])
    assert all(ports.job_states.swap([Swap(state, 0) for state in states]))
    search, _ = a_search(world)

    def listed() -> list[tuple[str, RunStatus]]:
        world.settle()
        views = list_all(search, None, RunFilters(), 2)
        return [(view.run.run_id, view.run.status) for view in views]

    running = (an_id(11), RunStatus.RUNNING)
    others = [(an_id(13), RunStatus.SUCCESS), (an_id(12), RunStatus.WAITING)]
    assert listed() == [*others, running]
    world.clock.set(NOON + HOUR)
    assert listed() == [(an_id(14), RunStatus.QUEUED), *others, running]
    ports.job_states.swap([Swap(msgspec_replace(states[3], version=2, runs=()), 1)])
    assert listed() == [*others, running], "the run was withdrawn"
    over = a_run(an_id(11), RunStatus.FAILED, token=1, ended_at=NOON)
    ports.job_states.swap(
        [Swap(msgspec_replace(states[0], version=2, runs=(), unrecorded=(over,)), 1)]
    )
    assert listed() == [*others, (an_id(11), RunStatus.FAILED)]
