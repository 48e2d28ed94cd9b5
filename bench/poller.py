"""Measure how many recurring jobs a second one core dispatches through boto3 (`make bench-poller`).

The poller and the adapter are real, and a local endpoint returns canned answers. So the measurement
covers only the CPU time of the poller's process.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import boto3

from bench import canned
from punctual.aws.clients import CREW, Clients
from punctual.aws.dynamodb.client import chunked
from punctual.aws.dynamodb.jobs.state_rows import to_row
from punctual.aws.dynamodb.timers.rows import TimerRow, rows_for
from punctual.aws.ports import aws_ports
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState, JobStatus, Kind, Rules
from punctual.domain.schedules.values import Every
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.poller import BATCH, Poller
from punctual.engine.ports.partitions import BucketLease
from punctual.engine.ports.timers import Timer
from punctual.node.clock import ManualClock
from punctual.settings import Settings
from tests.support.builders import NOON, after
from tests.support.ports import a_change_applier

PEAK = 10_000  # runs a second at the peak that the design names
SETTINGS = Settings(
    stage="bench",
    jobs_table="jobs",
    timers_table="timers",
    runs_table="runs",
    control_table="control",
    audit_table="audit",
    bucket="bucket",
    wake_queue="https://sqs.invalid/1/wake",
    event_bus="bus",
    knobs="/bench/",
    queues={
        "quick-normal": "https://sqs.invalid/1/quick-normal.fifo",
        "long": "https://sqs.invalid/1/long.fifo",
    },
)


class Figures(NamedTuple):
    jobs: int
    cpu_seconds: float
    seconds: float

    @property
    def a_core(self) -> float:
        return self.jobs / self.cpu_seconds


def a_head(number: int) -> JobState:
    """Return the state of a job that recurs each minute and is due now."""
    job_id = sortable_id(NOON, number.to_bytes(10, "big"))
    return JobState(
        tenant="acme",
        job_id=job_id,
        version=5,
        edition=1,
        definition=1,
        state=JobStatus.SCHEDULED,
        kind=Kind.INTERVAL,
        created_at=after(-3600),
        updated_at=after(-60),
        schedule=Every(60, anchor_at=after(-3600)),
        rules={1: Rules(body=f"1-{job_id}", since_at=after(-3600))},
        mark=after(-60),
        next_at=NOON,
        timer_at=NOON,
        writers=(f"{job_id}-w",),
    )


def put_by(timers: Sequence[Timer], batch: int) -> Iterator[TimerRow]:
    """Yield timer rows as earlier evaluations put them, one batch at a time."""
    for number, some in enumerate(chunked(timers, batch)):
        yield from rows_for(some, f"{number:012x}")


@contextmanager
def endpoint(rows: Mapping[str, Any], timers: list[Any]) -> Iterator[str]:
    mine, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(rows, timers, its))
    process.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}"
    finally:
        process.terminate()
        process.join()


def _run(rows: Mapping[str, Any], timers: list[Any], said: Connection) -> None:
    canned.serve(rows, timers, said.send)


def measure(jobs: int, crew: int = CREW) -> Figures:
    """Dispatch one minute with `jobs` jobs that are all due at its first second."""
    heads = [a_head(number) for number in range(jobs)]
    rows = {head.job_id: to_row(head) for head in heads}
    timers = [Timer(NOON, 0, NOON, one.tenant, one.job_id, 5) for one in heads]
    standing = [row.item() for row in put_by(timers, BATCH)]
    with endpoint(rows, standing) as url:
        poller = _poller(url, crew)
        poller.open(BucketLease(NOON, 0, "bench", 1, 0, after(60)))
        cpu, wall = time.process_time(), time.perf_counter()
        handled = 0
        while handled < jobs:
            step = poller.step(NOON)
            assert step.handled, "the canned endpoint has no more to dispatch"
            handled += step.handled
        return Figures(handled, time.process_time() - cpu, time.perf_counter() - wall)


def _poller(url: str, crew: int) -> Poller:
    session = boto3.Session(
        region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    os.environ["AWS_ENDPOINT_URL"] = url
    clients, clock, numbers = Clients(session), ManualClock(NOON), count(1)
    ports = aws_ports(SETTINGS, clock, clients, ThreadPool(crew), RetryPolicy(time.sleep, "bench"))

    def new_id() -> str:
        return sortable_id(clock(), (next(numbers) << 16).to_bytes(10, "big"))

    steps = a_change_applier(ports, clock, clock.monotonic, lambda *_, **__: None)
    return Poller(ports.timers, ports.buckets, Evaluator(steps, new_id))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-poller")
    parser.add_argument("--jobs", type=int, default=2_000)
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} cores", flush=True)
    for crew in (1, CREW):
        found = measure(asked.jobs, crew)
        needed = -(-PEAK // int(found.a_core))
        print(
            f"{crew:>2} at a time: {found.a_core:,.0f} recurring jobs a second and core, "
            f"{found.cpu_seconds / found.jobs * 1e3:.3f} ms CPU each, "
            f"{found.jobs / found.seconds:,.0f}/s by the wall; "
            f"{needed} pollers for {PEAK:,} a second",
            flush=True,
        )
    print(f"load after: {os.getloadavg()}", flush=True)


if __name__ == "__main__":
    main()
