"""Measure what the change feed adds to the writes of a run: `python -m bench.feed_cost [jobs]`.

Two stores do the same work in turn, and one of them writes no feed. So other load of the machine
meets both.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from bench.store import (
    JOBS_PER_TRANSACTION,
    NOON,
    create_jobs,
    end_runs,
    make_job_steps,
    start_runs,
)
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.store import Store
from tests.support.builders import ManualClock

MEASURED_JOBS = 4_000
TRANSACTION_SIZES = (1, 100)


def forget_changes(feed: SqliteChangeFeed) -> None:
    feed.on_rollback()


def open_stores(folder: Path) -> tuple[Store, Store]:
    """Return a store with the feed, and one without."""
    with_feed = Store.open(folder / "with", ManualClock(NOON))
    with patch.object(SqliteChangeFeed, "flush", forget_changes):
        return with_feed, Store.open(folder / "without", ManualClock(NOON))


def measure(jobs: int, runs_per_transaction: int, folder: Path) -> None:
    """Print the processor time of a run's two transactions: its start and its end."""
    steps = [make_job_steps(number) for number in range(jobs)]
    gc.collect()
    gc.freeze()
    stores = open_stores(folder)
    for store in stores:
        for first in range(0, jobs, JOBS_PER_TRANSACTION):
            with store.transaction():
                create_jobs(store, steps[first : first + JOBS_PER_TRANSACTION])
    costs: dict[Store, list[float]] = {store: [] for store in stores}
    for first in range(0, jobs, runs_per_transaction):
        part = steps[first : first + runs_per_transaction]
        for store in stores if first // runs_per_transaction % 2 else stores[::-1]:
            started = time.thread_time_ns()
            with store.transaction():
                start_runs(store, part)
            with store.transaction():
                end_runs(store, part)
            costs[store].append((time.thread_time_ns() - started) / 1_000 / len(part))
    with_feed, without = (statistics.median(costs[store]) for store in stores)
    print(
        f"{runs_per_transaction:4} runs in a transaction: {without:6.1f} µs a run without feed, "
        f"{with_feed:6.1f} µs with it, {(with_feed / without - 1) * 100:+.1f} %"
    )
    for store in stores:
        store.close()


def main(jobs: int) -> None:
    print(f"{jobs} runs, load {os.getloadavg()[0]:.1f}")
    for runs_per_transaction in TRANSACTION_SIZES:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            measure(jobs, runs_per_transaction, Path(folder))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MEASURED_JOBS)
