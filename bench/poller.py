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
from punctual.aws.clients import MAX_AWS_CONNECTIONS, Clients
from punctual.aws.dynamodb.client import chunked, key_of
from punctual.aws.dynamodb.jobs.state_rows import to_row
from punctual.aws.dynamodb.timers.rows import TimerRow, build_rows
from punctual.aws.ports import build_aws_ports
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.schedules.values import Every
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.poller import MAX_TIMER_BATCH, Poller
from punctual.engine.ports.partitions import PartitionLease
from punctual.engine.ports.timers import Timer
from tests.support.aws.settings import a_settings
from tests.support.builders import NOON, ManualClock, after
from tests.support.ports import a_change_applier

PEAK_RUNS_A_SECOND = 10_000  # runs a second at the peak that the design names
SETTINGS = a_settings("bench")


class PollerFigures(NamedTuple):
    jobs: int
    cpu_seconds: float
    seconds: float

    @property
    def jobs_per_core_second(self) -> float:
        return self.jobs / self.cpu_seconds


def make_state(number: int) -> JobState:
    """Return the state of a job that recurs each minute and is due now."""
    job_id = sortable_id(NOON, number.to_bytes(10, "big"))
    return JobState(
        tenant="acme",
        job_id=job_id,
        version=5,
        edition=1,
        definition=1,
        status=JobStatus.SCHEDULED,
        kind=ScheduleKind.INTERVAL,
        created_at=after(-3600),
        updated_at=after(-60),
        schedule=Every(60, anchor_at=after(-3600)),
        rules={1: Rules(definition_ref=f"1-{job_id}", effective_at=after(-3600))},
        planned_until=after(-60),
        next_at=NOON,
        timer_at=NOON,
        write_ids=(f"{job_id}-w",),
    )


def put_timer_rows(timers: Sequence[Timer], batch: int) -> Iterator[TimerRow]:
    """Yield timer rows as earlier evaluations put them, one batch at a time."""
    for number, batch_timers in enumerate(chunked(timers, batch)):
        yield from build_rows(batch_timers, f"{number:012x}")


@contextmanager
def endpoint(rows: Mapping[str, Any], timers: list[Any]) -> Iterator[str]:
    own_pipe, child_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve_canned, args=(rows, timers, child_pipe)
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{own_pipe.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve_canned(rows: Mapping[str, Any], timers: list[Any], pipe: Connection) -> None:
    canned.serve(rows, timers, pipe.send)


def measure(jobs: int, threads: int = MAX_AWS_CONNECTIONS) -> PollerFigures:
    """Dispatch one minute with `jobs` jobs that are all due at its first second."""
    states = [make_state(number) for number in range(jobs)]
    rows = {" ".join(key_of(row)): row for row in map(to_row, states)}
    timers = [Timer(NOON, 0, NOON, job_state.tenant, job_state.job_id, 5) for job_state in states]
    timer_items = [row.item() for row in put_timer_rows(timers, MAX_TIMER_BATCH)]
    with endpoint(rows, timer_items) as url:
        poller = _build_poller(url, threads)
        poller.add_partition(PartitionLease(NOON, 0, "bench", 1, 0, after(60)))
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        handled = 0
        while handled < jobs:
            step = poller.step(NOON)
            assert step.timer_count, "the canned endpoint has no more timers"
            handled += step.timer_count
        return PollerFigures(
            handled, time.process_time() - cpu_before, time.perf_counter() - wall_before
        )


def _build_poller(url: str, threads: int) -> Poller:
    session = boto3.Session(
        region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    os.environ["AWS_ENDPOINT_URL"] = url
    clients, clock, numbers = Clients(session), ManualClock(NOON), count(1)
    ports = build_aws_ports(
        SETTINGS, clock, clients, ThreadPool(threads), RetryPolicy(time.sleep, "bench")
    )

    def new_id() -> str:
        return sortable_id(clock(), (next(numbers) << 16).to_bytes(10, "big"))

    applier = a_change_applier(ports, clock, clock.monotonic, lambda *_, **__: None)
    return Poller(ports.timers, ports.partitions, Evaluator(applier, new_id))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-poller")
    parser.add_argument("--jobs", type=int, default=2_000)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} cores", flush=True)
    for threads in (1, MAX_AWS_CONNECTIONS):
        figures = measure(options.jobs, threads)
        pollers = -(-PEAK_RUNS_A_SECOND // int(figures.jobs_per_core_second))
        print(
            f"{threads:>2} threads: {figures.jobs_per_core_second:,.0f} recurring jobs per second "
            "and core, "
            f"{figures.cpu_seconds / figures.jobs * 1e3:.3f} ms CPU each, "
            f"{figures.jobs / figures.seconds:,.0f}/s of wall time; "
            f"{pollers} pollers for {PEAK_RUNS_A_SECOND:,} per second",
            flush=True,
        )
    print(f"load after: {os.getloadavg()}", flush=True)


if __name__ == "__main__":
    main()
