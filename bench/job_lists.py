"""Measure the pages of `GET /jobs` on the node: `python -m bench.job_lists [jobs] [runs]`.

Each page must take at most 50 ms with 100,000 jobs and a million runs. The processor time is what
counts: the machine may be busy with other work.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import Run, RunStatus
from punctual.domain.schedules.schedule import Every
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import JobFilters, JobHealth, JobQuery, JobSort
from punctual.engine.ports.rows import DefinitionRow, RunRow
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.recent_runs import MAX_RECENT_RUNS
from punctual.engine.queries.slices import finish
from punctual.node.sqlite.job_queries import build_job_queries
from punctual.node.sqlite.store import Store
from punctual.web.http.paging import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from punctual.web.views.job import job_json
from tests.support.builders import NOON, ManualClock

TENANT = "local"
JOBS_PER_TRANSACTION, RUNS_PER_TRANSACTION = 500, 2_000
MAX_PAGE_MS = 50
MAX_PAGES = 40  # measured of each list
ONE_IN = 1_000  # jobs that a selective filter passes
_encode = msgspec.json.Encoder().encode


def job_id_of(number: int) -> str:
    return sortable_id(NOON + timedelta(milliseconds=number), number.to_bytes(10, "big"))


def a_job(number: int) -> tuple[JobState, DefinitionRow]:
    job_id, name = job_id_of(number), f"report {number * 7919 % 1_000_003}"
    is_special = number % ONE_IN == 0
    tags = {"team": f"team-{number % 20}", "env": "special" if is_special else "prod"}
    document = {"name": name, "schedule_type": "INTERVAL", "interval_seconds": 60, "tags": tags}
    state = JobState(
        tenant=TENANT,
        job_id=job_id,
        version=1,
        edition=1,
        definition=1,
        status=JobStatus.PAUSED if is_special else JobStatus.SCHEDULED,
        kind=ScheduleKind.INTERVAL,
        created_at=NOON,
        updated_at=NOON,
        schedule=Every(60, NOON),
        rules={1: Rules(definition_ref="1-000000000000", effective_at=NOON)},
        planned_until=NOON,
        next_at=NOON + timedelta(seconds=number * 31 % 86_400) if number % 3 else None,
        write_ids=("01900000-0000-7000-8000-000000000000",),
    )
    definition = DefinitionRow(
        *(TENANT, job_id, "1-000000000000", 1, NOON, name, document),
        created_by="ada" if is_special else "ci",
        tags=tags,
    )
    return state, definition


def a_run(number: int, jobs: int) -> RunRow:
    """Return the row of a run. Jobs take turns, so the runs of a job lie far apart."""
    at = NOON + timedelta(seconds=number // jobs)
    status = RunStatus.FAILED if number % 11 == 0 else RunStatus.SUCCESS
    run = Run(
        run_id=sortable_id(at, number.to_bytes(10, "big")),
        status=status,
        definition=1,
        scheduled_at=at,
        due_at=at,
        created_at=at,
        changed_at=at,
        executor_id="node-1",
        started_at=at,
        attempt_at=at,
        ended_at=at + timedelta(milliseconds=number % 977),
    )
    return RunRow(TENANT, job_id_of(number % jobs), run, NOON + HISTORY_RETENTION, "2026a")


def fill(store: Store, jobs: int, runs: int) -> None:
    """Create the jobs, then their runs. One job in `ONE_IN` never ran."""
    for first in range(0, jobs, JOBS_PER_TRANSACTION):
        made = [a_job(number) for number in range(first, first + JOBS_PER_TRANSACTION)]
        with store.transaction():
            store.job_states.put_definitions([definition for _, definition in made])
            store.job_states.swap([Swap(state, 0) for state, _ in made])
    for first in range(0, runs, RUNS_PER_TRANSACTION):
        numbers = range(first, first + RUNS_PER_TRANSACTION)
        rows = [a_run(number, jobs) for number in numbers if number % jobs % ONE_IN]
        with store.transaction():
            store.history.put_runs(rows)
    newest = runs - jobs
    for first in range(0, jobs, JOBS_PER_TRANSACTION):
        changed = [
            replace(
                a_job(number)[0], version=2, latest_run_id=a_run(newest + number, jobs).run.run_id
            )
            for number in range(first, first + JOBS_PER_TRANSACTION)
            if number % ONE_IN
        ]
        with store.transaction():
            store.job_states.swap([Swap(state, 1) for state in changed])


def queries_of(store: Store, clock: ManualClock) -> JobQueries:
    return build_job_queries(store, None, clock, _no_log, _waits_for_nothing)  # type: ignore[arg-type]


def _no_log(_event: str, **_fields: object) -> None:
    return None


def _waits_for_nothing(*_values: object) -> bool:
    return False


FILTERS = {
    "no filter": JobFilters(),
    "status": JobFilters(status=frozenset({"PAUSED"})),
    "status, no job": JobFilters(status=frozenset({"CANCELLED"})),
    "schedule type, no job": JobFilters(schedule_type="CRON"),
    "name": JobFilters(name="report 7919"),
    "name, no job": JobFilters(name="nothing"),
    "name prefix": JobFilters(name_prefix="report 77"),
    "name prefix, no job": JobFilters(name_prefix="zzz"),
    "text": JobFilters(text="ENV:SPECIAL"),
    "text, no job": JobFilters(text="nothing"),
    "creator": JobFilters(created_by="ada"),
    "creator, no job": JobFilters(created_by="eve"),
    "tag": JobFilters(tags=(("team", "team-7"),)),
    "rare tag": JobFilters(tags=(("env", "special"),)),
    "tag, no job": JobFilters(tags=(("team", "x"),)),
    "two tags, no job": JobFilters(tags=(("team", "team-7"), ("env", "special"))),
    "failing": JobFilters(health=JobHealth.FAILING),
    "late, no job": JobFilters(health=JobHealth.LATE),
    "never ran": JobFilters(health=JobHealth.NEVER_RAN),
    "never ran, no job": JobFilters(health=JobHealth.NEVER_RAN, created_by="ci"),
}


def pages(
    queries: JobQueries, clock: ManualClock, query: JobQuery, limit: int, recent: int | None
) -> Iterator[tuple[int, float]]:
    """Yield the number of jobs and the milliseconds of each page."""
    cursor = None
    while True:
        began_at = time.process_time()
        page = finish(queries.jobs(TENANT, query, limit, cursor))
        jobs = [_encode(job_json(view, "", clock(), recent)) for view in page.items]
        yield len(jobs), (time.process_time() - began_at) * 1e3
        cursor = page.next_cursor
        if cursor is None:
            return


def measure(label: str, walked: Iterator[tuple[int, float]]) -> float:
    """Print the slowest page of a list, of its first pages."""
    listed = list(islice(walked, MAX_PAGES))
    slowest = max(milliseconds for _, milliseconds in listed)
    jobs = sum(page for page, _ in listed)
    print(f"{label:36} {slowest:6.1f} ms  {len(listed):3} pages  {jobs:6} jobs", flush=True)
    return slowest


def main(jobs: int, runs: int) -> None:
    print(f"{jobs} jobs, {runs} runs, load {os.getloadavg()[0]:.1f}; slowest page of each list")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        clock = ManualClock(NOON)
        store = Store.open(Path(folder), clock)
        fill(store, jobs, runs)
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 1_000)  # as on the node
        queries = queries_of(store, clock)
        lists: list[tuple[str, JobQuery, int, int | None]] = [
            (f"{sort.value}: {name}", JobQuery(filters, sort), DEFAULT_PAGE_SIZE, None)
            for sort in JobSort
            for name, filters in FILTERS.items()
        ]
        lists += [
            ("50 jobs with 30 outcomes", JobQuery(), DEFAULT_PAGE_SIZE, MAX_RECENT_RUNS),
            ("200 jobs", JobQuery(), MAX_PAGE_SIZE, None),
        ]
        slowest = max(
            measure(label, pages(queries, clock, query, limit, recent))
            for label, query, limit, recent in lists
        )
        print(f"slowest page: {slowest:.1f} ms, aim {MAX_PAGE_MS} ms")
        store.close()


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] or ("100000", "1000000"))))
