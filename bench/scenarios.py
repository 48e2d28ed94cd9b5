"""The measured scenarios: lateness, submissions, restarts, idling, a million jobs."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.client import Client, measure_rate, request
from bench.running import RunningNode, run_node

JOBS_PER_REQUEST = 500
RUN_PAGE_SIZE = 200


class Figure(NamedTuple):
    label: str
    value: str
    aim: str


class LatenessResult(NamedTuple):
    """Lateness of all runs of a scenario in milliseconds, and their CPU time."""

    lateness_ms: Sequence[float]
    drain_seconds: float
    cpu_ms: float

    def quantile(self, share: float) -> float:
        ordered = sorted(self.lateness_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def format_time(time_value: datetime) -> str:
    return time_value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def future_job(
    due_at: datetime, name: str = "bench", task: dict[str, Any] | None = None
) -> dict[str, Any]:
    job: dict[str, Any] = {
        "name": name,
        "schedule_type": "FUTURE",
        "schedule_time": format_time(due_at),
    }
    return job if task is None else {**job, "task": task}


async def store_jobs(node: RunningNode, jobs: Sequence[dict[str, Any]]) -> float:
    """Store all jobs in batches, and return jobs a second."""
    requests = [
        request("POST", "/jobs/batch", {"jobs": jobs[start : start + JOBS_PER_REQUEST]})
        for start in range(0, len(jobs), JOBS_PER_REQUEST)
    ]
    return len(jobs) / len(requests) * await measure_rate(node.port, requests, 1, 207)


async def list_runs(node: RunningNode, status: str = "") -> list[dict[str, Any]]:
    client = await Client(node.port).connect()
    all_runs: list[dict[str, Any]] = []
    token = ""
    while True:
        query = f"/runs?limit={RUN_PAGE_SIZE}{token}{f'&status={status}' if status else ''}"
        status_code, page = await client.call("GET", query)
        assert status_code == 200, page
        all_runs.extend(page["runs"])
        if page["next_token"] is None:
            client.close()
            return all_runs
        token = f"&next_token={page['next_token']}"


async def wait_for_successes(node: RunningNode, count: int, timeout_seconds: float) -> float:
    """Wait until `count` runs have succeeded, and return the time of the observation."""
    client = await Client(node.port).connect()
    deadline = time.perf_counter() + timeout_seconds
    while True:
        _, stats = await client.call("GET", "/stats")
        if stats["runs"].get("SUCCESS", 0) >= count:
            client.close()
            return time.perf_counter()
        if time.perf_counter() > deadline:
            raise RuntimeError(f"only {stats['runs']} after {timeout_seconds} s")
        await asyncio.sleep(0.005)


async def measure_lateness(node: RunningNode, due_times: Sequence[datetime]) -> LatenessResult:
    """Store one job for each moment, let them run, and read the lateness of each."""
    runs_before = len(await list_runs(node))
    await store_jobs(node, [future_job(due_at) for due_at in due_times])
    await asyncio.sleep(max(0.0, (min(due_times) - datetime.now(UTC)).total_seconds() - 0.2))
    cpu_before = node.cpu_seconds
    wait_seconds = (max(due_times) - datetime.now(UTC)).total_seconds()
    await asyncio.sleep(max(0.0, wait_seconds))
    await wait_for_successes(node, runs_before + len(due_times), 60)
    # Read this clock and the API. A batch itself reports only the moment at which it began.
    drain_seconds = (datetime.now(UTC) - min(due_times)).total_seconds()
    cpu_seconds = node.cpu_seconds - cpu_before
    own_runs = (await list_runs(node))[: len(due_times)]
    values = [run["lateness_ms"] for run in own_runs]
    assert len({run["job_id"] for run in own_runs}) == len(due_times), (
        "a run is missing or duplicated"
    )
    assert min(values) >= 0, "a run was early"
    return LatenessResult(values, drain_seconds, cpu_seconds / len(due_times) * 1_000)


async def measure_steady(node: RunningNode, jobs_per_second: int, seconds: int) -> LatenessResult:
    start = datetime.now(UTC) + timedelta(seconds=6)
    step = timedelta(seconds=1) / jobs_per_second
    return await measure_lateness(
        node, [start + step * index for index in range(jobs_per_second * seconds)]
    )


async def measure_burst(node: RunningNode, count: int) -> LatenessResult:
    due_at = datetime.now(UTC) + timedelta(seconds=6)
    return await measure_lateness(node, [due_at] * count)


async def measure_submissions(node: RunningNode, clients: int, count: int) -> float:
    far_future = datetime.now(UTC) + timedelta(days=30)
    submission = request("POST", "/jobs", future_job(far_future))
    return await measure_rate(node.port, [submission] * count, clients, 202)


@asynccontextmanager
async def slow_api(seconds: float) -> AsyncIterator[dict[str, Any]]:
    """Yield a task that calls a loopback API with answers after `seconds`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield {"type": "http", "method": "GET", "url": f"http://127.0.0.1:{port}/"}


async def measure_kill(folder: Path, count: int, task: dict[str, Any] | None) -> Figure:
    """Kill the node with SIGKILL in the middle of its runs. No run may be lost or doubled."""
    node = RunningNode(folder).start()
    now = datetime.now(UTC)
    await store_jobs(
        node, [future_job(now + timedelta(seconds=3), task=task) for _ in range(count)]
    )
    await asyncio.sleep(max(0.0, 3.05 - (datetime.now(UTC) - now).total_seconds()))
    node.kill()
    killed_at = time.perf_counter()
    node.start()
    try:
        succeeded_at = await wait_for_successes(node, count, 120)
        all_runs = await list_runs(node)
    finally:
        node.stop()
    successes = [run for run in all_runs if run["status"] == "SUCCESS"]
    lost = count - len({run["job_id"] for run in successes})
    doubled = len(successes) - len({run["run_id"] for run in successes})
    task_name = "event" if task is None else "100 ms http"
    label = f"kill -9 in {count} {task_name} jobs: lost, twice, seen in"
    return Figure(label, f"{lost}, {doubled}, {succeeded_at - killed_at:.2f} s", "0, 0, 3 s")


async def measure_idle(folder: Path, count: int, seconds: float) -> Figure:
    with run_node(folder) as node:
        far_future = datetime.now(UTC) + timedelta(days=30)
        await store_jobs(node, [future_job(far_future) for _ in range(count)])
        await asyncio.sleep(2)
        cpu_before = node.cpu_seconds
        await asyncio.sleep(seconds)
        cpu_percent = (node.cpu_seconds - cpu_before) / seconds * 100
    return Figure(f"idle with {count} future jobs, CPU", f"{cpu_percent:.2f} %", "< 0.2 %")
