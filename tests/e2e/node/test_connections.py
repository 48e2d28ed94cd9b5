"""A node with connections that never complete their request."""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.running import RunningNode, run_node
from punctual.client import Punctual, tasks
from tests.support.node.node_calls import call

HALF_SENT = 1_100
HALF = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: appli"
RUNS = 12
STALLED_READERS = 50
PATIENCE = 120.0  # seconds, for a busy machine


@contextmanager
def half_sent(port: int, number: int, sent: bytes = HALF) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < number + 200:
        pytest.skip(f"this process may open {hard} files, and the test needs {number + 200}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number + 200), hard))
    sockets: list[socket.socket] = []
    try:
        for _ in range(number):
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            sockets.append(connection)
            connection.sendall(sent)
        yield sockets
    finally:
        for connection in sockets:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("open_files", [None, 1_024])
def test_runs_succeed_beside_more_half_sent_requests_than_the_node_keeps(
    tmp_path: Path, open_files: int | None
) -> None:
    node = RunningNode(tmp_path / "data", open_files=open_files).start()
    try:
        assert _ends_beside_half_sent_requests(node) == {"SUCCESS": RUNS}
    finally:
        node.stop()


def test_node_with_a_low_open_file_limit_refuses_to_start(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, sys.executable, "-m", "punctual.node"],
        env={**os.environ, "PUNCTUAL_PORT": "0", "PUNCTUAL_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "open files and may have 128: raise the limit" in done.stderr


def _ends_beside_half_sent_requests(node: RunningNode) -> dict[str, int]:
    """Submit jobs beside half-sent requests, and return how many runs ended with each status."""
    script = {"type": "script", "runtime": "bash", "code": "echo $PUNCTUAL_RUN_ID"}
    http = {"type": "http", "method": "GET", "url": f"http://127.0.0.1:{node.port}/v1/health"}
    jobs = [
        {"name": str(n), "schedule_type": "IMMEDIATE", "task": task, "max_retries": 0}
        for n in range(RUNS // 2)
        for task in (script, http)
    ]
    with half_sent(node.port, HALF_SENT):
        status, _ = call(node, "POST", "/jobs/batch", {"jobs": jobs})
        assert status == 207
        until = time.monotonic() + PATIENCE
        ended: dict[str, int] = {}
        while sum(ended.get(outcome, 0) for outcome in ("SUCCESS", "FAILED", "TIMED_OUT")) < RUNS:
            assert time.monotonic() < until, ended
            ended = call(node, "GET", "/stats")[1]["runs"]
            time.sleep(0.05)
    return ended


def test_half_sent_requests_are_answered_with_408_and_closed(node: RunningNode) -> None:
    with half_sent(node.port, 20) as sockets:
        began = time.monotonic()
        for connection in sockets:
            connection.settimeout(PATIENCE)
            assert connection.recv(12) == b"HTTP/1.1 408"
        assert time.monotonic() - began > 5


def test_header_over_64_kib_is_answered_with_431(node: RunningNode) -> None:
    start = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nx-long: "
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE) as connection:
        connection.sendall(start + b"a" * (64 * 1024 + 1 - len(start)))
        assert connection.recv(12) == b"HTTP/1.1 431"


def test_endless_header_uses_no_memory(node: RunningNode) -> None:
    before = node.memory_mb
    sent = 0
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nx-endless: ")
        # The node closes the connection, and the next write to it fails.
        with suppress(BrokenPipeError, ConnectionResetError):
            while sent < 200_000_000:
                connection.sendall(b"a" * 1_000_000)
                sent += 1_000_000
    assert sent < 50_000_000
    assert node.memory_mb - before < 30
    assert call(node, "GET", "/health")[0] == 200


def test_readers_that_stall_in_a_long_output_take_little_memory(tmp_path: Path) -> None:
    with (
        run_node(tmp_path / "data") as node,
        Punctual(f"http://127.0.0.1:{node.port}/v1") as client,
    ):
        task = tasks.script("seq 1300000", runtime="bash")
        job = client.jobs.create(
            name="long", schedule_type="CRON", cron_expression="0 0 1 1 *", task=task
        )
        run = client.wait_for(client.jobs.run(job))
        size = len(client.runs.output(run).data)
        path = f"/v1/jobs/{run.job_id}/runs/{run.run_id}/output"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        before_mb = node.memory_mb
        with half_sent(node.port, STALLED_READERS, head) as readers:
            for reader in readers:
                assert reader.recv(100).startswith(b"HTTP/1.1 200 ")
            assert client.health().status
            growth_mb = node.memory_mb - before_mb
        assert client.health().status
    assert growth_mb < STALLED_READERS * size / 1_000_000 / 4
    assert '"level":"ERROR"' not in (tmp_path / "data.log").read_text()
