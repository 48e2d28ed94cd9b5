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
from punctual.domain.durations import RETENTION
from punctual.domain.events import Claim, Evaluate, Finish
from punctual.domain.identifiers import bucket_of, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Kind, Rules
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Once
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import DefinitionRow, Detail, Key, RunRow
from punctual.engine.ports.timers import Timer
from punctual.node.clock import ManualClock
from punctual.node.sqlite.store import Store

UNIT = 500
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DUE = NOON + timedelta(seconds=30)
MARK = "01900000-0000-7000-8000-000000000000"


class Story(NamedTuple):
    """The engine's calls of the store in the life of a one-time job."""

    key: Key
    body: DefinitionRow
    timer: Timer
    made: Swap
    fired: Swap
    claimed: Swap
    finished: Swap
    row: RunRow


def story(number: int) -> Story:
    job_id = sortable_id(NOON + timedelta(milliseconds=number), number.to_bytes(10, "big"))
    head = JobState(
        tenant="local",
        job_id=job_id,
        version=1,
        edition=1,
        definition=1,
        state=JobStatus.SCHEDULED,
        kind=Kind.FUTURE,
        created_at=NOON,
        updated_at=NOON,
        schedule=Once(DUE),
        rules={1: Rules(body="1-000000000000", since_at=NOON)},
        mark=NOON,
        next_at=DUE,
        timer_at=DUE,
        writers=(MARK,),
    )
    fired = decide(head, Evaluate(brought=(DUE,)), DUE, MARK)
    run = fired.sends[0]
    claimed = decide(fired.head, Claim(run.run_id, "host-1", MARK), DUE, MARK)
    token = claimed.head.version
    finished = decide(claimed.head, Finish(run.run_id, token, RunStatus.SUCCESS), DUE, MARK)
    document = {"name": "bench", "schedule_type": "FUTURE", "schedule_time": DUE.isoformat()}
    detail = Detail(output=b"1", output_type="text/plain; charset=utf-8")
    return Story(
        Key("local", job_id),
        DefinitionRow(
            "local", job_id, "1-000000000000", 1, NOON, "bench", document, payload={"n": number}
        ),
        Timer(bucket_of(DUE), 0, DUE, "local", job_id, 1),
        Swap(head, 0),
        _swap(head, fired),
        _swap(fired.head, claimed),
        _swap(claimed.head, finished),
        RunRow("local", job_id, finished.records[0], DUE + RETENTION, "2026a", detail),
    )


def _swap(read: JobState, decision: Decision) -> Swap:
    return Swap(decision.head, read.version, decision.leases, decision.required)


def create(store: Store, unit: Sequence[Story]) -> None:
    store.heads.put_bodies([one.body for one in unit])
    store.timers.put([one.timer for one in unit])
    store.heads.swap([one.made for one in unit])


def start(store: Store, unit: Sequence[Story]) -> None:
    store.heads.load([one.key for one in unit])
    store.heads.swap([one.fired for one in unit])
    store.timers.delete([one.timer for one in unit])
    store.heads.swap([one.claimed for one in unit])


def end(store: Store, unit: Sequence[Story]) -> None:
    store.heads.swap([one.finished for one in unit])
    store.history.put([one.row for one in unit])


def whole(store: Store, unit: Sequence[Story]) -> None:
    start(store, unit)
    end(store, unit)


def measure(
    name: str, store: Store, jobs: Sequence[Story], work: Callable[[Store, Sequence[Story]], None]
) -> None:
    costs = []
    for begin in range(0, len(jobs), UNIT):
        unit = jobs[begin : begin + UNIT]
        began = time.perf_counter()
        with store.work():
            work(store, unit)
        costs.append((time.perf_counter() - began) / len(unit) * 1e6)
    print(f"{name:44} {statistics.median(costs):6.1f} µs a job")


def main(jobs: int) -> None:
    stories = [story(number) for number in range(jobs)]
    gc.collect()
    gc.freeze()
    print(f"units of {UNIT}, {jobs} jobs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = Store.open(Path(folder), ManualClock(NOON))
        half = len(stories) // 2
        measure("create: timer, body, head", store, stories, create)
        measure("fire, claim", store, stories[:half], start)
        measure("finish, history", store, stories[:half], end)
        measure("fire, claim, finish, history in one unit", store, stories[half:], whole)
        store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
