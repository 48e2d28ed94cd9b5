"""Measure the audit's cost for a submission to the node: python -m bench.audit"""

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from punctual.domain.job_state import Lane
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.audit_log import Actor
from punctual.identity import new_id
from punctual.node import clock
from punctual.node.files.process_groups import GroupFiles
from punctual.node.main import spare_the_collector
from punctual.node.node import Node
from punctual.node.sqlite.store import FILE, Store
from punctual.node.workers import Workers
from punctual.tasks.registry import Registry

ROUNDS = 16
JOBS = 10_000  # per round
WHO = Actor("ada@example.com", "0193e2b4-7b12-7000-8000-000000000000", "203.0.113.9", "r" * 36)


def quiet(_event: str, /, **_facts: object) -> None: ...


def a_node(store: Store, folder: Path) -> Node:
    workers = {Lane.QUICK.value: Workers("quick", 1), Lane.LONG.value: Workers("long", 1)}
    groups = GroupFiles(folder / "groups")
    ids = new_id(clock.wall)
    return Node(
        store,
        Registry({}),
        groups,
        clock.wall,
        clock.monotonic,
        ids,
        quiet,
        workers,
        lambda: None,
    )


def submissions(at: datetime, size: int) -> list[Submission]:
    document = {
        "name": "hello",
        "schedule_type": "FUTURE",
        "schedule_time": at.isoformat(),
        "payload": {"customer": 1234},
        "task": {"type": "event"},
    }
    return [Submission(document) for _ in range(size)]


def microseconds(size: int, by: Actor | None) -> tuple[float, float]:
    """Return CPU time and disk bytes per job, for requests of this size, 20 in a commit."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = Store.open(folder / "data")
        node = a_node(store, folder)
        wanted = submissions(clock.wall() + timedelta(days=1), size)

        def request() -> object:
            return node.jobs.submit("local", "ada", wanted, by)

        requests: list[Callable[[], object]] = [request] * 20
        began = time.process_time()
        for _ in range(JOBS // size // 20):
            node.perform(requests)
        spent = time.process_time() - began
        store.close()
        return spent / JOBS * 1e6, (folder / "data" / FILE).stat().st_size / JOBS


def main() -> None:
    spare_the_collector()  # as the node does
    print(f"load {os.getloadavg()[0]:.2f}, {ROUNDS} rounds of {JOBS:,} jobs each way")
    for size in (1, 500):
        pairs = [(microseconds(size, None), microseconds(size, WHO)) for _ in range(ROUNDS)]
        # the round with the least disturbance from other processes
        without = min(one[0] for one, _ in pairs)
        ratio = min(other[0] for _, other in pairs) / without
        more = pairs[0][1][1] - pairs[0][0][1]
        print(
            f"  {size:>3} jobs a request: {without:5.1f} µs without, {ratio - 1:+.1%} with, "
            f"{more:+.0f} bytes a job"
        )


if __name__ == "__main__":
    main()
