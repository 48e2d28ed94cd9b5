"""Measure the embedded store's cost of a job: `python -m bench.store [jobs]`.

Each transaction holds 500 jobs.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from punctual.domain.decide import Decision, decide
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.events import Claim, Evaluate, Finish
from punctual.domain.identifiers import bucket_of, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Once
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import DefinitionRow, Detail, JobKey, RunRow
from punctual.engine.ports.timers import Timer
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock

JOBS_PER_TRANSACTION = 500
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DUE = NOON + timedelta(seconds=30)
WRITE_ID = "01900000-0000-7000-8000-000000000000"


class JobSteps(NamedTuple):
    """The engine's calls of the store in the life of a one-time job."""

    key: JobKey
    definition: DefinitionRow
    timer: Timer
    created: Swap
    fired: Swap
    claimed: Swap
    finished: Swap
    row: RunRow


def make_job_steps(number: int) -> JobSteps:
    job_id = sortable_id(NOON + timedelta(milliseconds=number), number.to_bytes(10, "big"))
    state = JobState(
        tenant="local",
        job_id=job_id,
        version=1,
        edition=1,
        definition=1,
        status=JobStatus.SCHEDULED,
        kind=ScheduleKind.FUTURE,
        created_at=NOON,
        updated_at=NOON,
        schedule=Once(DUE),
        rules={1: Rules(definition_ref="1-000000000000", effective_at=NOON)},
        planned_until=NOON,
        next_at=DUE,
        timer_at=DUE,
        write_ids=(WRITE_ID,),
    )
    fired = decide(state, Evaluate(trigger_times=(DUE,)), DUE, WRITE_ID)
    run = fired.runs_to_send[0]
    claimed = decide(fired.state, Claim(run.run_id, "host-1", WRITE_ID), DUE, WRITE_ID)
    fencing_token = claimed.state.version
    finished = decide(
        claimed.state, Finish(run.run_id, fencing_token, RunStatus.SUCCESS), DUE, WRITE_ID
    )
    document = {"name": "bench", "schedule_type": "FUTURE", "schedule_time": DUE.isoformat()}
    detail = Detail(output=b"1", output_type="text/plain; charset=utf-8")
    return JobSteps(
        JobKey("local", job_id),
        DefinitionRow(
            "local", job_id, "1-000000000000", 1, NOON, "bench", document, payload={"n": number}
        ),
        Timer(bucket_of(DUE), 0, DUE, "local", job_id, 1),
        Swap(state, 0),
        _swap(state, fired),
        _swap(fired.state, claimed),
        _swap(claimed.state, finished),
        RunRow(
            "local", job_id, finished.runs_to_record[0], DUE + HISTORY_RETENTION, "2026a", detail
        ),
    )


def _swap(state: JobState, decision: Decision) -> Swap:
    return Swap(decision.state, state.version, decision.leases, decision.required_leases)


def create_jobs(store: Store, jobs: Sequence[JobSteps]) -> None:
    store.job_states.put_definitions([job.definition for job in jobs])
    store.timers.put([job.timer for job in jobs])
    store.job_states.swap([job.created for job in jobs])


def start_runs(store: Store, jobs: Sequence[JobSteps]) -> None:
    store.job_states.load([job.key for job in jobs])
    store.job_states.swap([job.fired for job in jobs])
    store.timers.delete([job.timer for job in jobs])
    store.job_states.swap([job.claimed for job in jobs])


def end_runs(store: Store, jobs: Sequence[JobSteps]) -> None:
    store.job_states.swap([job.finished for job in jobs])
    store.history.put_runs([job.row for job in jobs])


def start_and_end_runs(store: Store, jobs: Sequence[JobSteps]) -> None:
    start_runs(store, jobs)
    end_runs(store, jobs)


def measure(
    name: str,
    store: Store,
    jobs: Sequence[JobSteps],
    work: Callable[[Store, Sequence[JobSteps]], None],
) -> None:
    costs = []
    for first in range(0, len(jobs), JOBS_PER_TRANSACTION):
        batch = jobs[first : first + JOBS_PER_TRANSACTION]
        started_at = time.perf_counter()
        with store.transaction():
            work(store, batch)
        costs.append((time.perf_counter() - started_at) / len(batch) * 1e6)
    print(f"{name:44} {statistics.median(costs):6.1f} µs a job")


def main(jobs: int) -> None:
    all_steps = [make_job_steps(number) for number in range(jobs)]
    gc.collect()
    gc.freeze()
    print(f"transactions of {JOBS_PER_TRANSACTION}, {jobs} jobs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = Store.open(Path(folder), ManualClock(NOON))
        middle = len(all_steps) // 2
        measure("create: timer, definition, job state", store, all_steps, create_jobs)
        measure("fire, claim", store, all_steps[:middle], start_runs)
        measure("finish, history", store, all_steps[:middle], end_runs)
        measure(
            "fire, claim, finish, history in one transaction",
            store,
            all_steps[middle:],
            start_and_end_runs,
        )
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
