"""Measure a real node for `make bench`, and print a table with the machine's load."""

import argparse
import os
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from bench import next_time
from bench.running import RunningNode, a_node
from bench.scenarios import (
    Figure,
    Late,
    burst,
    future,
    idle,
    killed,
    slow_api,
    steady,
    store,
    submissions,
)

MILLION = 1_000_000


def show(figures: list[Figure]) -> None:
    width = max(len(figure.what) for figure in figures)
    for figure in figures:
        print(f"{figure.what:<{width}}  {figure.value:>28}  aim {figure.aim}", flush=True)


def of(late: Late, what: str, aims: tuple[str, str]) -> list[Figure]:
    return [
        Figure(
            f"{what}: lateness p50, p99, max",
            f"{late.at(0.5):.2f}, {late.at(0.99):.2f}, {max(late.values):.1f} ms",
            aims[0],
        ),
        Figure(
            f"{what}: CPU a job, drained",
            f"{late.cpu_ms:.3f} ms, {len(late.values) / max(late.drained_in, 1e-9):,.0f}/s",
            aims[1],
        ),
    ]


async def on_time(node: RunningNode, seconds: int) -> list[Figure]:
    figures = of(await steady(node, 200, seconds), "200/s", ("0.8, 1.3 ms", "0.6 ms"))
    figures += of(await burst(node, 1_000), "1,000 at once", ("p99 60 ms", "-"))
    figures += of(await burst(node, 10_000), "10,000 at once", ("p99 200 ms", "0.05 ms, 50,000/s"))
    return figures


async def submitted(node: RunningNode, rounds: int) -> list[Figure]:
    def median(values: list[float]) -> str:
        return f"{statistics.median(values):,.0f}/s"

    one = [await submissions(node, 1, 2_000) for _ in range(rounds)]
    many = [await submissions(node, 16, 8_000) for _ in range(rounds)]
    far = datetime.now(UTC) + timedelta(days=30)
    batches = [await store(node, [future(far)] * 20_000) for _ in range(rounds)]
    return [
        Figure("durable submissions, 1 client", median(one), "2,500/s"),
        Figure("durable submissions, 16 clients", median(many), "8,000/s"),
        Figure("durable submissions, batches of 500", median(batches), "40,000/s"),
    ]


async def with_a_million(folder: Path, seconds: int) -> list[Figure]:
    far = datetime.now(UTC) + timedelta(days=30)
    with a_node(folder) as node:
        for _ in range(MILLION // 50_000):
            await store(node, [future(far)] * 50_000)
    with a_node(folder) as node:
        figures = [
            Figure("a million jobs stored: start", f"{node.started_in:.2f} s", "< 3 s"),
            Figure("a million jobs stored: memory", f"{node.memory_mb:.0f} MB", "bounded"),
        ]
        figures += [
            f._replace(what=f"a million stored, {f.what}") for f in await on_time(node, seconds)
        ]
        figures.append(Figure("a million stored: memory after", f"{node.memory_mb:.0f} MB", "-"))
    return figures


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--million", action="store_true", help="also with a million stored jobs")
    parser.add_argument("--seconds", type=int, default=30, help="of the steady load")
    parser.add_argument("--only", default="", help="next, submit, time, kill, idle or million")
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} cores, fsync on", flush=True)
    with tempfile.TemporaryDirectory(prefix="punctual-bench-", dir=".") as name:
        folder = Path(name)
        if asked.only in ("", "next"):
            next_time.main()
        if asked.only in ("", "submit"):
            with a_node(folder / "submit") as node:
                show(await submitted(node, 3))
        if asked.only in ("", "time"):
            with a_node(folder / "time") as node:
                show(await on_time(node, asked.seconds))
        if asked.only in ("", "kill"):
            show([await killed(folder / "kill-event", 5_000, None)])
            async with slow_api(0.1) as task:
                show([await killed(folder / "kill-http", 400, task)])
        if asked.only in ("", "idle"):
            show([await idle(folder / "idle", 2_000, 20)])
        if asked.million or asked.only == "million":
            show(await with_a_million(folder / "million", asked.seconds))
    print(f"load after: {os.getloadavg()}", flush=True)


uvloop.run(main())
