"""Clients follow the changes of a node that is killed in the middle of its runs."""

import threading
import time
from pathlib import Path

from bench.running import RunningNode, run_node
from punctual.client import Change, Punctual, script
from tests.support.node.node_calls import call, eventually

RUNS = 30


def test_client_ends_with_the_lists_although_the_node_is_killed_twice(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data").start()
    shown: dict[str, str] = {}
    try:
        with Punctual(f"http://127.0.0.1:{node.port}/v1") as client:
            cursor = client.read_changes().next_cursor
            for number in range(RUNS):
                task = script("sleep 0.2", runtime="bash")
                client.jobs.create(name=f"job {number}", schedule_type="IMMEDIATE", task=task)
                if number in (10, 20):
                    node.kill()
                    node.start()
            eventually(lambda: call(node, "GET", "/stats")[1]["runs"].get("SUCCESS") == RUNS)
            has_more = True
            while has_more:
                page = client.read_changes(after=cursor)
                assert not page.gap
                for change in page.changes:
                    if change.run is not None:
                        shown[change.run.run_id] = change.run.status
                has_more, cursor = bool(page.changes), page.next_cursor
            listed = {run.run_id: run.status for run in client.runs.list(limit=200)}
        assert shown == listed
        assert len(listed) == RUNS
    finally:
        node.stop()


def test_waiting_client_is_told_of_a_change_at_once(tmp_path: Path) -> None:
    with (
        run_node(tmp_path / "data") as node,
        Punctual(f"http://127.0.0.1:{node.port}/v1") as client,
    ):
        found: list[tuple[float, Change]] = []
        cursor = client.read_changes().next_cursor

        def follow() -> None:
            with Punctual(f"http://127.0.0.1:{node.port}/v1") as other:
                for change in other.changes(after=cursor, kind="run"):
                    found.append((time.monotonic(), change))
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        created_at = time.monotonic()
        client.jobs.create(name="a", schedule_type="IMMEDIATE", task=script("true", runtime="bash"))
        thread.join(timeout=15)
        ((seen_at, change),) = found
        assert change.run is not None
        assert seen_at - created_at < 10, "the answer waits for no timeout"
