"""Measure the pages of `GET /runs` on a node: `python -m bench.run_lists [jobs] [runs]`.

One run in 50 fails, one job in 1,000 is named `rare`, and every second one has the tag `team:data`.
"""

import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import occurrence_id, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import Reason, Run, RunStatus, Trigger
from punctual.domain.schedules.schedule import Once
from punctual.domain.utc import MILLISECOND
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.ports.rows import DefinitionRow, RunRow
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.engine.queries.slices import finish
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TENANT = "local"
ROWS_PER_TRANSACTION = 5_000
ROUNDS = 5
PAGE_LIMIT = 50
FILTERS = {
    "none": RunFilters(),
    "status of 2 %": RunFilters(frozenset({"FAILED"})),
    "status of none": RunFilters(frozenset({"TIMED_OUT"})),
    "status of nearly all": RunFilters(frozenset({"SUCCESS"})),
    "reason of few": RunFilters(reasons=frozenset({"LOST"})),
    "reason of none": RunFilters(reasons=frozenset({"POISON"})),
    "duration of few": RunFilters(min_duration=timedelta(seconds=59)),
    "duration of none": RunFilters(min_duration=timedelta(hours=1)),
    "name of few jobs": RunFilters(job_name="rare"),
    "name of most jobs": RunFilters(job_name="usual"),
    "name of none": RunFilters(job_name="unknown"),
    "name of few, status of none": RunFilters(frozenset({"TIMED_OUT"}), job_name="rare"),
    "name of most, status of none": RunFilters(frozenset({"TIMED_OUT"}), job_name="usual"),
    "tag of half": RunFilters(tags=(("team", "data"),)),
    "tag of half, duration of none": RunFilters(
        min_duration=timedelta(hours=1), tags=(("team", "data"),)
    ),
    "tag of none": RunFilters(tags=(("team", "none"),)),
    "trigger of none": RunFilters(trigger=Trigger.RETRY.value),
    "ended, a year ago": RunFilters(
        start=NOON - timedelta(days=365),
        end=NOON - timedelta(days=364),
        time_field=TimeField.ENDED,
    ),
    "ended, in the future": RunFilters(
        start=NOON + timedelta(days=364), time_field=TimeField.ENDED
    ),
}


def job_id_of(number: int) -> str:
    return sortable_id(NOON + number * MILLISECOND, number.to_bytes(10, "big"))


def create_jobs(store: Store, first: int, last: int) -> None:
    swaps, definitions = [], []
    for number in range(first, last):
        job_id, ref = job_id_of(number), "1-000000000000"
        name = "rare" if number % 1_000 == 0 else "usual"
        tags = {"team": "data"} if number % 2 else {}
        document = {"name": name, "schedule_type": "FUTURE", "tags": tags}
        definitions.append(DefinitionRow(TENANT, job_id, ref, 1, NOON, name, document, tags=tags))
        state = JobState(
            *(TENANT, job_id, 1, 1, 1, JobStatus.SCHEDULED, ScheduleKind.FUTURE, NOON, NOON),
            Once(NOON + timedelta(days=300)),
            {1: Rules(definition_ref=ref, effective_at=NOON)},
            planned_until=NOON,
            next_at=NOON + timedelta(days=300),
            write_ids=("01900000-0000-7000-8000-000000000000",),
        )
        swaps.append(Swap(state, 0))
    with store.transaction():
        store.job_states.put_definitions(definitions)
        store.job_states.swap(swaps)


def run_of(number: int, job_id: str) -> RunRow:
    scheduled_at = NOON + number * 20 * MILLISECOND
    status = RunStatus.FAILED if number % 50 == 0 else RunStatus.SUCCESS
    started_at = scheduled_at + MILLISECOND
    run = Run(
        *(occurrence_id(job_id, scheduled_at), status, 1, scheduled_at, scheduled_at),
        *(scheduled_at, started_at),
        reason=Reason.LOST if number % 100_000 == 0 else Reason.NONE,
        token=3,
        executor_id="host-1",
        started_at=started_at,
        attempt_at=started_at,
        ended_at=started_at + timedelta(seconds=60 if number % 200_000 == 0 else 1),
    )
    assert run.ended_at is not None
    return RunRow(TENANT, job_id, run, run.ended_at + HISTORY_RETENTION, "2026a")


def fill(store: Store, jobs: int, runs: int) -> None:
    for first in range(0, jobs, ROWS_PER_TRANSACTION):
        create_jobs(store, first, min(first + ROWS_PER_TRANSACTION, jobs))
    for first in range(0, runs, ROWS_PER_TRANSACTION):
        numbers = range(first, min(first + ROWS_PER_TRANSACTION, runs))
        with store.transaction():
            # A prime spreads the runs of each job over all of the time.
            rows = [run_of(number, job_id_of(number * 7_919 % jobs)) for number in numbers]
            store.history.put_runs(rows)


def measure(store: Store, name: str, filters: RunFilters) -> None:
    """Print the processor time of the first page, and the most of the pages that follow it."""
    merged, labels = MergedRuns(store.job_states, store.history), JobLabels(store.job_states)
    costs, run_count = [], 0
    for _ in range(ROUNDS):
        after = None
        round_costs = []
        for _ in range(4):
            started_at = time.process_time()
            page = finish(merged.page(TENANT, filters, PAGE_LIMIT, after, NOON))
            labels.add_to(page.items)
            round_costs.append((time.process_time() - started_at) * 1e3)
            run_count, after = len(page.items), page.next_cursor
            if after is None:
                break
        costs.append(round_costs)
    first = statistics.median(cost[0] for cost in costs)
    longest = statistics.median(max(cost) for cost in costs)
    print(f"{name:32} {first:6.1f} ms  {longest:6.1f} ms  {run_count:3} runs", flush=True)


def main(jobs: int, runs: int) -> None:
    print(f"{jobs:,} jobs, {runs:,} runs, load {os.getloadavg()[0]:.1f}")
    print(f"{'filter':32} first page    longest  the last page")
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder), ManualClock(NOON))
        started_at = time.perf_counter()
        fill(store, jobs, runs)
        print(f"filled in {time.perf_counter() - started_at:.0f} s", flush=True)
        for name, filters in FILTERS.items():
            measure(store, name, filters)
        store.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:] or ("100000", "1000000")))
