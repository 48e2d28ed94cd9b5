"""Measure operations on many jobs of a node: `python -m bench.operations [jobs]`.

The jobs are yearly ones, each with a name of its own. Each action reaches all of them: pause,
resume, run_now, cancel. The next action begins after the runs of `run_now` have ended.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.client import Client
from bench.running import RunningNode, run_node
from bench.scenarios import store_jobs, wait_for_successes

MEASURED_ACTIONS = ("pause", "resume", "run_now", "cancel")
JOBS = 100_000
NAME_PREFIX = "bench-"
POLL_SECONDS = 0.1
MAX_OPERATION_SECONDS = 900.0
_COLUMNS = "{:<8}  {:>8}  {:>10}  {:>10}  {:>10}  {:>12}  {:>6}"


class MeasuredOperation(NamedTuple):
    """Seconds from the request to its answer, and to the end of the operation."""

    action: str
    items: int
    answer_seconds: float
    wall_seconds: float
    cpu_seconds: float  # of the node
    load: float


def yearly_job(number: int) -> dict[str, Any]:
    name = f"{NAME_PREFIX}{number:06}"
    return {"name": name, "schedule_type": "CRON", "cron_expression": "0 0 1 1 *"}


async def measure_operation(node: RunningNode, action: str, jobs: int) -> MeasuredOperation:
    """Begin the operation on all jobs, and wait until it is done. It must reach each job."""
    client = await Client(node.port).connect()
    cpu_before, started_at = node.cpu_seconds, time.perf_counter()
    body = {"action": action, "filter": {"name_prefix": NAME_PREFIX}}
    status, operation = await client.call("POST", "/jobs/bulk", body)
    answer_seconds = time.perf_counter() - started_at
    assert status == 202, operation
    path = f"/operations/{operation['operation_id']}"
    while operation["status"] == "RUNNING":
        if time.perf_counter() - started_at > MAX_OPERATION_SECONDS:
            raise RuntimeError(f"not done after {MAX_OPERATION_SECONDS:g} s: {operation}")
        await asyncio.sleep(POLL_SECONDS)
        _, operation = await client.call("GET", path)
    wall_seconds = time.perf_counter() - started_at
    client.close()
    counts = [operation[name] for name in ("matched", "done", "failed")]
    assert (operation["status"], counts) == ("DONE", [jobs, jobs, 0]), operation
    cpu_seconds = node.cpu_seconds - cpu_before
    return MeasuredOperation(
        action, jobs, answer_seconds, wall_seconds, cpu_seconds, os.getloadavg()[0]
    )


def print_operation(measured: MeasuredOperation) -> None:
    print(
        _COLUMNS.format(
            measured.action,
            f"{measured.items:,}",
            f"{measured.answer_seconds:.2f} s",
            f"{measured.wall_seconds:.2f} s",
            f"{measured.cpu_seconds:.2f} s",
            f"{measured.cpu_seconds / measured.items * 1e6:,.0f} µs",
            f"{measured.load:.1f}",
        ),
        flush=True,
    )


async def measure(folder: Path, jobs: int) -> list[MeasuredOperation]:
    """Store the jobs in a new node, and measure and print each action on all of them."""
    operations = []
    with run_node(folder) as node:
        stored_a_second = await store_jobs(node, [yearly_job(number) for number in range(jobs)])
        print(f"{jobs:,} jobs stored, {stored_a_second:,.0f} a second", flush=True)
        print(_COLUMNS.format("action", "jobs", "answered", "done", "CPU", "CPU a job", "load"))
        for action in MEASURED_ACTIONS:
            operations.append(await measure_operation(node, action, jobs))
            print_operation(operations[-1])
            if action == "run_now":
                await wait_for_successes(node, jobs, MAX_OPERATION_SECONDS)
    return operations


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operations")
    parser.add_argument("jobs", type=int, nargs="?", default=JOBS)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} cores, fsync on", flush=True)
    with tempfile.TemporaryDirectory(prefix="punctual-bench-", dir=".") as folder:
        uvloop.run(measure(Path(folder) / "operations", options.jobs))


if __name__ == "__main__":
    main()
