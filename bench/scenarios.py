"""The measured scenarios: lateness, submissions, restarts, idling, a million jobs."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.client import Client, rate, request
from bench.running import RunningNode, a_node

BATCH = 500
PAGE = 200


class Figure(NamedTuple):
    what: str
    value: str
    aim: str


class Late(NamedTuple):
    """Lateness of all runs of a scenario in milliseconds, and their CPU time."""

    values: Sequence[float]
    drained_in: float
    cpu_ms: float

    def at(self, share: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def future(at: datetime, name: str = "bench", task: dict[str, Any] | None = None) -> dict[str, Any]:
    job: dict[str, Any] = {"name": name, "schedule_type": "FUTURE", "schedule_time": stamp(at)}
    return job if task is None else {**job, "task": task}


async def store(node: RunningNode, jobs: Sequence[dict[str, Any]]) -> float:
    """Store all jobs in batches, and return jobs a second."""
    requests = [
        request("POST", "/jobs/batch", {"jobs": jobs[start : start + BATCH]})
        for start in range(0, len(jobs), BATCH)
    ]
    return len(jobs) / len(requests) * await rate(node.port, requests, 1, 207)


async def runs(node: RunningNode, status: str = "") -> list[dict[str, Any]]:
    client = await Client(node.port).connect()
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        query = f"/runs?limit={PAGE}{token}{f'&status={status}' if status else ''}"
        code, page = await client.call("GET", query)
        assert code == 200, page
        found.extend(page["runs"])
        if page["next_token"] is None:
            client.close()
            return found
        token = f"&next_token={page['next_token']}"


async def succeeded(node: RunningNode, count: int, within: float) -> float:
    """Wait until `count` runs have succeeded, and return the time of the observation."""
    client = await Client(node.port).connect()
    until = time.perf_counter() + within
    while True:
        _, stats = await client.call("GET", "/stats")
        if stats["runs"].get("SUCCESS", 0) >= count:
            client.close()
            return time.perf_counter()
        if time.perf_counter() > until:
            raise RuntimeError(f"only {stats['runs']} after {within} s")
        await asyncio.sleep(0.005)


async def lateness(node: RunningNode, moments: Sequence[datetime]) -> Late:
    """Store one job for each moment, let them run, and read the lateness of each."""
    known = len(await runs(node))
    await store(node, [future(at) for at in moments])
    await asyncio.sleep(max(0.0, (min(moments) - datetime.now(UTC)).total_seconds() - 0.2))
    cpu = node.cpu
    wall = (max(moments) - datetime.now(UTC)).total_seconds()
    await asyncio.sleep(max(0.0, wall))
    await succeeded(node, known + len(moments), 60)
    # Read this clock and the API. A batch itself reports only the moment at which it began.
    drained = (datetime.now(UTC) - min(moments)).total_seconds()
    spent = node.cpu - cpu
    ours = (await runs(node))[: len(moments)]
    values = [run["lateness_ms"] for run in ours]
    assert len({run["job_id"] for run in ours}) == len(moments), "a run is missing or double"
    assert min(values) >= 0, "a run was early"
    return Late(values, drained, spent / len(moments) * 1_000)


async def steady(node: RunningNode, a_second: int, seconds: int) -> Late:
    start = datetime.now(UTC) + timedelta(seconds=6)
    step = timedelta(seconds=1) / a_second
    return await lateness(node, [start + step * n for n in range(a_second * seconds)])


async def burst(node: RunningNode, count: int) -> Late:
    at = datetime.now(UTC) + timedelta(seconds=6)
    return await lateness(node, [at] * count)


async def submissions(node: RunningNode, clients: int, count: int) -> float:
    far = datetime.now(UTC) + timedelta(days=30)
    one = request("POST", "/jobs", future(far))
    return await rate(node.port, [one] * count, clients, 202)


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


async def killed(folder: Path, count: int, task: dict[str, Any] | None) -> Figure:
    """Kill the node with SIGKILL in the middle of its runs. No run may be lost or doubled."""
    node = RunningNode(folder).start()
    now = datetime.now(UTC)
    await store(node, [future(now + timedelta(seconds=3), task=task) for _ in range(count)])
    await asyncio.sleep(max(0.0, 3.05 - (datetime.now(UTC) - now).total_seconds()))
    node.kill()
    began = time.perf_counter()
    node.start()
    try:
        seen = await succeeded(node, count, 120)
        found = await runs(node)
    finally:
        node.stop()
    done = [run for run in found if run["status"] == "SUCCESS"]
    lost = count - len({run["job_id"] for run in done})
    twice = len(done) - len({run["run_id"] for run in done})
    kind = "event" if task is None else "100 ms http"
    what = f"kill -9 in {count} {kind} jobs: lost, twice, seen in"
    return Figure(what, f"{lost}, {twice}, {seen - began:.2f} s", "0, 0, 3 s")


async def idle(folder: Path, count: int, seconds: float) -> Figure:
    with a_node(folder) as node:
        far = datetime.now(UTC) + timedelta(days=30)
        await store(node, [future(far) for _ in range(count)])
        await asyncio.sleep(2)
        cpu = node.cpu
        await asyncio.sleep(seconds)
        share = (node.cpu - cpu) / seconds * 100
    return Figure(f"idle with {count} future jobs, CPU", f"{share:.2f} %", "< 0.2 %")
