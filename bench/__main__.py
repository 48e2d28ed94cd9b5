"""Measure a real node for `make bench`, and print a table with the machine's load."""

import argparse
import os
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop

from bench import next_time
from bench.followers import follower_figures
from bench.running import RunningNode, run_node
from bench.scenarios import (
    Figure,
    LatenessResult,
    future_job,
    measure_burst,
    measure_idle,
    measure_kill,
    measure_steady,
    measure_submissions,
    slow_api,
    store_jobs,
)

MILLION = 1_000_000


def print_figures(figures: list[Figure]) -> None:
    label_width = max(len(figure.label) for figure in figures)
    for figure in figures:
        print(f"{figure.label:<{label_width}}  {figure.value:>28}  aim {figure.aim}", flush=True)


def lateness_figures(
    lateness: LatenessResult, scenario: str, aims: tuple[str, str]
) -> list[Figure]:
    return [
        Figure(
            f"{scenario}: lateness p50, p99, max",
            f"{lateness.quantile(0.5):.2f}, {lateness.quantile(0.99):.2f}, "
            f"{max(lateness.lateness_ms):.1f} ms",
            aims[0],
        ),
        Figure(
            f"{scenario}: CPU a job, drained",
            f"{lateness.cpu_ms:.3f} ms, "
            f"{len(lateness.lateness_ms) / max(lateness.drain_seconds, 1e-9):,.0f}/s",
            aims[1],
        ),
    ]


async def measure_lateness(node: RunningNode, seconds: int) -> list[Figure]:
    figures = lateness_figures(
        await measure_steady(node, 200, seconds), "200/s", ("0.8, 1.3 ms", "0.6 ms")
    )
    figures += lateness_figures(
        await measure_burst(node, 1_000), "1,000 at once", ("p99 60 ms", "-")
    )
    figures += lateness_figures(
        await measure_burst(node, 10_000), "10,000 at once", ("p99 200 ms", "0.05 ms, 50,000/s")
    )
    return figures


async def submission_figures(node: RunningNode, rounds: int) -> list[Figure]:
    def median(values: list[float]) -> str:
        return f"{statistics.median(values):,.0f}/s"

    one_client = [await measure_submissions(node, 1, 2_000) for _ in range(rounds)]
    many_clients = [await measure_submissions(node, 16, 8_000) for _ in range(rounds)]
    far_future = datetime.now(UTC) + timedelta(days=30)
    batches = [await store_jobs(node, [future_job(far_future)] * 20_000) for _ in range(rounds)]
    return [
        Figure("durable submissions, 1 client", median(one_client), "2,500/s"),
        Figure("durable submissions, 16 clients", median(many_clients), "8,000/s"),
        Figure("durable submissions, batches of 500", median(batches), "40,000/s"),
    ]


async def measure_with_million_jobs(folder: Path, seconds: int) -> list[Figure]:
    far_future = datetime.now(UTC) + timedelta(days=30)
    with run_node(folder) as node:
        for _ in range(MILLION // 50_000):
            await store_jobs(node, [future_job(far_future)] * 50_000)
    with run_node(folder) as node:
        figures = [
            Figure("a million jobs stored: start", f"{node.start_seconds:.2f} s", "< 3 s"),
            Figure("a million jobs stored: memory", f"{node.memory_mb:.0f} MB", "bounded"),
        ]
        figures += [
            figure._replace(label=f"a million stored, {figure.label}")
            for figure in await measure_lateness(node, seconds)
        ]
        figures.append(Figure("a million stored: memory after", f"{node.memory_mb:.0f} MB", "-"))
    return figures


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--million", action="store_true", help="also with a million stored jobs")
    parser.add_argument("--seconds", type=int, default=30, help="seconds of the steady load")
    parser.add_argument(
        "--only", default="", help="next, submit, time, follow, kill, idle or million"
    )
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} cores, fsync on", flush=True)
    with tempfile.TemporaryDirectory(prefix="punctual-bench-", dir=".") as folder_name:
        folder = Path(folder_name)
        if options.only in ("", "next"):
            next_time.main()
        if options.only in ("", "submit"):
            with run_node(folder / "submit") as node:
                print_figures(await submission_figures(node, 3))
        if options.only in ("", "time"):
            with run_node(folder / "time") as node:
                print_figures(await measure_lateness(node, options.seconds))
        if options.only in ("", "follow"):
            with run_node(folder / "follow") as node:
                print_figures(await follower_figures(node, min(options.seconds, 15)))
        if options.only in ("", "kill"):
            print_figures([await measure_kill(folder / "kill-event", 5_000, None)])
            async with slow_api(0.1) as task:
                print_figures([await measure_kill(folder / "kill-http", 400, task)])
        if options.only in ("", "idle"):
            print_figures([await measure_idle(folder / "idle", 2_000, 20)])
        if options.million or options.only == "million":
            print_figures(await measure_with_million_jobs(folder / "million", options.seconds))
    print(f"load after: {os.getloadavg()}", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
