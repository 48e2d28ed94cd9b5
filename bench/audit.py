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
from punctual.node.files.data_folder import DATABASE
from punctual.node.files.process_groups import GroupFiles
from punctual.node.main import tune_garbage_collector
from punctual.node.node import Node
from punctual.node.sqlite.store import Store
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner

ROUNDS = 16
JOBS = 10_000  # per round
ACTOR = Actor("ada@example.com", "0193e2b4-7b12-7000-8000-000000000000", "203.0.113.9", "r" * 36)


def discard_event(_event: str, /, **_facts: object) -> None: ...


def build_node(store: Store, folder: Path) -> Node:
    workers = {Lane.QUICK.value: Workers("quick", 1), Lane.LONG.value: Workers("long", 1)}
    groups = GroupFiles(folder / "groups")
    draw_id = new_id(clock.wall)
    return Node(
        store,
        AttemptRunner({}),
        groups,
        clock.wall,
        clock.monotonic,
        draw_id,
        discard_event,
        workers,
        lambda: None,
    )


def make_submissions(due_at: datetime, size: int) -> list[Submission]:
    document = {
        "name": "hello",
        "schedule_type": "FUTURE",
        "schedule_time": due_at.isoformat(),
        "payload": {"customer": 1234},
        "task": {"type": "event"},
    }
    return [Submission(document) for _ in range(size)]


def measure_request(size: int, actor: Actor | None) -> tuple[float, float]:
    """Return CPU time and disk bytes per job, for requests of this size, 20 in a commit."""
    with TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        store = Store.open(folder / "data")
        node = build_node(store, folder)
        submissions_of_request = make_submissions(clock.wall() + timedelta(days=1), size)

        def request() -> object:
            return node.jobs.submit("local", "ada", submissions_of_request, actor)

        requests: list[Callable[[], object]] = [request] * 20
        started_at = time.process_time()
        for _ in range(JOBS // size // 20):
            node.perform(requests)
        cpu_seconds = time.process_time() - started_at
        store.close()
        return cpu_seconds / JOBS * 1e6, (folder / "data" / DATABASE).stat().st_size / JOBS


def main() -> None:
    tune_garbage_collector()  # as the node does
    print(f"load {os.getloadavg()[0]:.2f}, {ROUNDS} rounds of {JOBS:,} jobs each way")
    for size in (1, 500):
        pairs = [(measure_request(size, None), measure_request(size, ACTOR)) for _ in range(ROUNDS)]
        # the round with the least disturbance from other processes
        least_cpu = min(without_audit[0] for without_audit, _ in pairs)
        ratio = min(with_audit[0] for _, with_audit in pairs) / least_cpu
        extra_bytes = pairs[0][1][1] - pairs[0][0][1]
        print(
            f"  {size:>3} jobs a request: {least_cpu:5.1f} µs without, {ratio - 1:+.1%} with, "
            f"{extra_bytes:+.0f} bytes a job"
        )


if __name__ == "__main__":
    main()
