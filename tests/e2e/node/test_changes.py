"""Clients follow the changes of a node that is killed in the middle of its runs."""

import asyncio
import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.running import RunningNode, run_node
from punctual.client import AsyncPunctual, Change, Punctual, Run, script
from tests.e2e.cli.program import PROGRAM
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


def test_watches_of_a_run_survive_two_kills_of_the_node(tmp_path: Path) -> None:
    """The client waits and follows the log, and the command line watches."""
    node = RunningNode(tmp_path / "data").start()
    url = f"http://127.0.0.1:{node.port}/v1"
    code = (
        "for number in 1 2 3; do echo $PUNCTUAL_ATTEMPT.$number; sleep 0.5; done; "
        '[ "$PUNCTUAL_ATTEMPT" -gt 2 ] || sleep 60'
    )
    try:
        with Punctual(url) as client, ThreadPoolExecutor() as pool, ExitStack() as stack:
            job = client.jobs.create(
                name="watched",
                schedule_type="IMMEDIATE",
                task=script(code, runtime="bash"),
                max_retries=5,
                retry={"backoff_seconds": 0},
            )
            eventually(lambda: any(client.runs.list(job)))
            (run,) = client.runs.list(job)
            program = subprocess.Popen(
                [PROGRAM, "--url", url, "runs", "watch", "watched", "--json"],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(program.kill)
            assert program.stdout is not None
            states = [json.loads(program.stdout.readline())]  # it has found the run
            waiting = pool.submit(asyncio.run, wait_for(url, run))
            logs = pool.submit(lambda: "".join(client.runs.follow_logs(run)))
            for attempt in (1, 2):
                eventually(partial(has_begun, client, run, attempt))
                node.kill()
                node.start()
            assert waiting.result(timeout=60).succeeded
            assert logs.result(timeout=60).endswith("".join(f"3.{n}\n" for n in (1, 2, 3)))
            output, _ = program.communicate(timeout=60)
    finally:
        node.stop()
    assert program.returncode == 0
    states += [json.loads(line) for line in output.splitlines()]
    assert (states[-1]["status"], states[-1]["attempt_number"]) == ("SUCCESS", 3)


def has_begun(client: Punctual, run: Run, attempt: int) -> bool:
    now = client.runs.get(run)
    return (now.status, now.attempt_number) == ("RUNNING", attempt)


async def wait_for(url: str, run: Run) -> Run:
    async with AsyncPunctual(url) as client:
        return await client.wait_for(run, timeout=60)
