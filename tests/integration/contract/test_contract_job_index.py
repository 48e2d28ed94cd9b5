"""The index of jobs: filters, orders, and pages that stay complete while jobs change."""

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import Invalid
from punctual.domain.job_state import JobPause, JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import Reason, Run, RunStatus, WaitingRun
from punctual.domain.schedules.schedule import Every, Once
from punctual.domain.schedules.upcoming import next_run_at
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import (
    NO_FILTERS,
    JobFilters,
    JobHealth,
    JobQuery,
    JobSort,
    Position,
)
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.queries.job_order import position_of, sort_positions
from tests.support.aws.adapters import World
from tests.support.builders import NOON, a_definition_row, a_job_state, a_row, a_run, after, an_id

TENANT = "acme"
NAMES = ("Cleanup", "cleanup", "Ünïcode Größe", "nightly report", "nightly", "a" * 256, "🕰", "%_")
TAGS: tuple[dict[str, str], ...] = (
    {},
    {"team": "data"},
    {"team": "Data", "env": "prod"},
    {"team": "data", "a": 'x"y:z'},
)
MAX_PAGES = 500

FILTERS = [
    NO_FILTERS,
    JobFilters(status=frozenset({"PAUSED"})),
    JobFilters(status=frozenset({"SCHEDULED", "COMPLETED"}), schedule_type="CRON"),
    JobFilters(name="nightly"),
    JobFilters(name="Nightly"),
    JobFilters(name_prefix="nightly"),
    JobFilters(name_prefix="%"),
    JobFilters(text="GRÖSSE"),
    JobFilters(text="TEAM:data"),
    JobFilters(text="nothing has this"),
    JobFilters(created_by="ada"),
    JobFilters(tags=(("team", "data"),)),
    JobFilters(tags=(("a", 'x"y:z'), ("team", "data")), created_by="bob"),
    JobFilters(tags=(("team", "data"),), name="cleanup"),
    JobFilters(tags=(("team", "none of them"),)),
]


class Jobs:
    """The jobs of a test, with the definition in force of each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.states: dict[str, JobState] = {}
        self.definitions: dict[str, DefinitionRow] = {}

    def create(self, number: int, tenant: str = TENANT, **fields: Any) -> None:
        name, tags = fields.pop("name", "cleanup"), fields.pop("tags", {})
        created_by = fields.pop("created_by", "ada")
        state = a_job_state(an_id(number), tenant=tenant, **fields)
        row = a_definition_row(
            state.job_id, tenant=tenant, name=name, tags=tags, created_by=created_by
        )
        self._world.ports.job_states.put_definitions([row])
        self._write(state, 0, row)

    def change(self, number: int, **fields: Any) -> None:
        """Change a job state. A new name or new tags make a new definition."""
        state = self.states[an_id(number)]
        row = self.definitions[state.job_id]
        new = {name: fields.pop(name) for name in ("name", "tags") if name in fields}
        if new:
            edition = state.edition + 1
            row = replace(row, ref=f"{edition}-body", edition=edition, **new)
            self._world.ports.job_states.put_definitions([row])
            rules = {edition: Rules(definition_ref=row.ref, effective_at=NOON)}
            fields |= {"edition": edition, "definition": edition, "rules": rules}
        self._write(replace(state, version=state.version + 1, **fields), state.version, row)

    def _write(self, state: JobState, version: int, row: DefinitionRow) -> None:
        swap = Swap(replace(state, write_ids=(f"w{state.version}",)), version)
        assert self._world.ports.job_states.swap([swap]) == [True]
        if state.tenant == TENANT:
            self.states[state.job_id], self.definitions[state.job_id] = swap.state, row

    def expected(self, query: JobQuery, now: datetime) -> list[Position]:
        """Return the list as a sort of all jobs."""
        return sort_positions(
            query.sort,
            [
                position_of(query.sort, state, self.definitions[job_id].name)
                for job_id, state in self.states.items()
                if query.filters.matches(state, self.definitions[job_id], now)
            ],
        )


def list_pages(
    world: World, query: JobQuery, limit: int, between: Callable[[int], None] = lambda page: None
) -> list[Position]:
    """Return the positions on all pages. `between` is called after each page."""
    positions: list[Position] = []
    cursor: Position | None = None
    for number in range(MAX_PAGES):
        world.settle()
        page = world.ports.job_index.page(TENANT, query, limit, cursor, world.clock())
        assert len(page.positions) <= limit
        positions += page.positions
        cursor = page.next_cursor
        if cursor is None:
            return positions
        between(number)
    raise AssertionError("the list does not end")


def matching(jobs: Jobs, positions: Sequence[Position], query: JobQuery) -> list[Position]:
    """Return the positions of jobs that pass the filters, as the reader of the index does."""
    return [
        position
        for position in positions
        if query.filters.matches(jobs.states[position[-1]], jobs.definitions[position[-1]], NOON)
    ]


@pytest.fixture(params=list(JobSort))
def sort(request: pytest.FixtureRequest) -> JobSort:
    order: JobSort = request.param
    return order


def some_jobs(world: World, seed: int) -> Jobs:
    """Return jobs that were created, renamed, tagged again, paused, ended and moved."""
    chance, jobs = random.Random(seed), Jobs(world)
    for number in range(60):
        kind = chance.choice([ScheduleKind.CRON, ScheduleKind.FUTURE])
        next_at = chance.choice([None, after(10), after(20), after(chance.randrange(10_000))])
        jobs.create(
            number,
            name=chance.choice(NAMES),
            tags=chance.choice(TAGS),
            created_by=chance.choice(["ada", "bob"]),
            kind=kind,
            schedule=Every(60, NOON) if kind is ScheduleKind.CRON else Once(next_at or NOON),
            next_at=next_at,
        )
    for _ in range(40):
        changes: list[dict[str, Any]] = [
            {"name": chance.choice(NAMES)},
            {"tags": chance.choice(TAGS)},
            {"status": JobStatus.PAUSED},
            {"status": JobStatus.COMPLETED, "next_at": None, "ended_at": NOON},
            {"next_at": after(chance.randrange(10_000))},
        ]
        jobs.change(chance.randrange(60), **chance.choice(changes))
    return jobs


@pytest.mark.parametrize("filters", FILTERS)
def test_list_equals_a_sort_of_all_matching_jobs(
    world: World, sort: JobSort, filters: JobFilters
) -> None:
    jobs = some_jobs(world, 1)
    jobs.create(100, tenant="other")
    query = JobQuery(filters, sort)
    for limit in (7, 200):
        assert matching(jobs, list_pages(world, query, limit), query) == jobs.expected(query, NOON)


def late_run(run_id: str, status: RunStatus = RunStatus.QUEUED, **fields: Any) -> Run:
    return a_run(run_id, status, due_at=after(-20), created_at=after(-20), **fields)


JOBS_BY_HEALTH: dict[int, dict[str, Any]] = {
    1: {"runs": (late_run("queued"),), "latest_run_id": "queued"},
    2: {"runs": (a_run("r", due_at=after(-10)),), "latest_run_id": "r"},
    3: {
        "runs": (late_run("r", RunStatus.WAITING, reason=Reason.BACKOFF),),
        "latest_run_id": "r",
    },
    4: {"runs": (late_run("r", admitted_at=after(-3)),), "latest_run_id": "r"},
    5: {"runs": (late_run("r", RunStatus.RUNNING),), "latest_run_id": "r"},
    6: {"wait_queue": (WaitingRun("w", 1, after(-90), after(-90), NOON),)},
    7: {"latest_not_run_id": "missed"},
    8: {"latest_run_id": "ended"},
    9: {},
}


@pytest.mark.parametrize(
    ("health", "numbers"), [(JobHealth.LATE, {1}), (JobHealth.NEVER_RAN, {6, 7, 9})]
)
def test_health_filter_passes_late_jobs_or_jobs_without_a_run(
    world: World, sort: JobSort, health: JobHealth, numbers: set[int]
) -> None:
    jobs = Jobs(world)
    for number, fields in JOBS_BY_HEALTH.items():
        jobs.create(number, **fields)
    missed_run = a_run("missed", RunStatus.MISSED, ended_at=NOON)
    world.ports.history.put_runs(
        [a_row("ended", an_id(8)), a_row("missed", an_id(7), run=missed_run)]
    )
    query = JobQuery(JobFilters(health=health), sort)
    listed = matching(jobs, list_pages(world, query, 2), query)
    assert {position[-1] for position in listed} == {an_id(number) for number in numbers}
    assert listed == jobs.expected(query, NOON)


def test_filter_of_pauses_passes_jobs_paused_past_their_time(world: World, sort: JobSort) -> None:
    jobs = Jobs(world)
    pauses = {1: None, 2: JobPause(NOON), 3: JobPause(NOON, until=after(-20)), 4: JobPause(NOON)}
    pauses[5] = JobPause(NOON, until=after(-10))
    for number, pause in pauses.items():
        status = JobStatus.SCHEDULED if pause is None else JobStatus.PAUSED
        jobs.create(number, status=status, pause=pause)
    query = JobQuery(JobFilters(pause_ends_before=after(-15)), sort)
    listed = matching(jobs, list_pages(world, query, 2), query)
    assert {position[-1] for position in listed} == {an_id(3)}


def test_order_by_next_run_follows_the_time_that_jobs_show(world: World) -> None:
    jobs = Jobs(world)
    jobs.create(1, next_at=after(300))
    jobs.create(2, next_at=after(60))
    jobs.create(3, next_at=after(60), status=JobStatus.PAUSED)
    jobs.create(
        4, next_at=after(60), status=JobStatus.PAUSED, pause=JobPause(NOON, until=after(90))
    )
    fired_ahead = a_run("r", scheduled_at=after(1), due_at=after(1), created_at=NOON)
    jobs.create(5, next_at=after(600), runs=(fired_ahead,), latest_run_id="r")
    world.clock.set(after(20))  # the run of job 5 is late, and job 5 still shows its time
    query = JobQuery(sort=JobSort.NEXT_RUN)
    for limit in (1, 2, 10):
        positions = list_pages(world, query, limit)
        assert [position[-1] for position in positions] == [
            an_id(number) for number in (5, 2, 1, 4, 3)
        ]
        shown = [next_run_at(jobs.states[position[-1]]) for position in positions]
        assert shown == [after(1), after(60), after(300), None, None]


def test_blank_and_removed_jobs_are_not_listed(world: World, sort: JobSort) -> None:
    jobs = Jobs(world)
    jobs.create(1)
    blank = blank_state(JobKey(TENANT, an_id(2)), 1, "w", NOON)
    assert world.ports.job_states.swap([Swap(blank, 0)]) == [True]
    positions = list_pages(world, JobQuery(sort=sort), 10)
    assert [position[-1] for position in positions] == [an_id(1)]


def test_jobs_that_keep_their_place_are_listed_once_while_others_change(
    world: World, sort: JobSort
) -> None:
    jobs = Jobs(world)
    for number in range(40):
        jobs.create(number, name=f"job {number % 7}", next_at=after(number % 5 * 60))

    def change_others(page: int) -> None:
        jobs.create(1_000 + page, name=f"job {page % 7}", next_at=after(page))
        jobs.change(2 * page % 40, name=f"renamed {page}", next_at=after(10_000 + page))

    positions = list_pages(world, JobQuery(sort=sort), 4, change_others)
    listed = [position[-1] for position in positions]
    unchanged = [an_id(number) for number in range(1, 40, 2)]
    assert sorted(job_id for job_id in listed if job_id in set(unchanged)) == unchanged


def test_list_of_creation_has_no_doubles_while_jobs_change(world: World) -> None:
    jobs = Jobs(world)
    for number in range(30):
        jobs.create(number)

    def change(page: int) -> None:
        jobs.change(page, name=f"renamed {page}")
        jobs.create(1_000 + page)

    positions = list_pages(world, JobQuery(), 4, change)
    assert positions == [(an_id(number),) for number in reversed(range(30))]
    assert all(first > second for first, second in pairwise(positions))


def test_positions_made_up_by_a_client_are_refused_or_harmless(world: World, sort: JobSort) -> None:
    Jobs(world).create(1)
    index = world.ports.job_index
    made_up = ("x",) if sort is JobSort.CREATED else ("yesterday", "x")
    try:
        page = index.page(TENANT, JobQuery(sort=sort), 10, made_up, NOON)
    except Invalid:
        assert sort is JobSort.NEXT_RUN
    else:
        assert {position[-1] for position in page.positions} <= {an_id(1)}


def test_expired_jobs_leave_the_list_with_their_states(world: World, sort: JobSort) -> None:
    jobs = Jobs(world)
    jobs.create(1, status=JobStatus.COMPLETED, ended_at=NOON)
    jobs.create(2)
    world.clock.set(NOON + HISTORY_RETENTION)
    positions = list_pages(world, JobQuery(sort=sort), 10)
    keys = [JobKey(TENANT, position[-1]) for position in positions]
    assert list(world.ports.job_states.load(keys)) == [JobKey(TENANT, an_id(2))]
