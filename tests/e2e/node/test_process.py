"""The node as a process: killed, stopped and refused."""

import asyncio
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.client import Client
from bench.running import RunningNode
from bench.scenarios import future_job, list_runs, store_jobs
from punctual.node.main import DEFAULT_ADDRESS, first_job_commands
from tests.support.node.node_calls import call, eventually, refusal


def test_first_job_runs_and_shows_its_output(node: RunningNode) -> None:
    task = {"type": "script", "runtime": "bash", "code": "read x; echo got $x"}
    body = {"name": "hello", "schedule_type": "IMMEDIATE", "task": task, "payload": {"a": 1}}
    status, job = call(node, "POST", "/jobs", body)
    assert status == 202
    path = f"/jobs/{job['job_id']}"
    eventually(lambda: call(node, "GET", f"{path}/status")[1]["status"] == "COMPLETED")
    latest = call(node, "GET", f"{path}/status")[1]["latest_run"]
    assert latest["status"] == "SUCCESS"

    async def output() -> bytes:
        client = await Client(node.port).connect()
        request = (
            f"GET /v1{path}/runs/{latest['run_id']}/output HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        status, data = await client.send(request.encode())
        client.close()
        assert status == 200
        return data

    assert asyncio.run(output()) == b'got {"a":1}\n'


def test_first_commands_of_the_node_show_the_output_of_a_job(
    node: RunningNode, tmp_path: Path
) -> None:
    commands = first_job_commands(f"http://127.0.0.1:{node.port}/v1", auth=False)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    shell = subprocess.run(
        ["bash", "-ec", "\n".join(commands)], env=environment, capture_output=True, text=True
    )
    assert (shell.returncode, shell.stderr) == (0, "")
    assert shell.stdout.splitlines()[-1] == "hello"


def test_first_commands_of_the_node_name_only_settings_that_differ() -> None:
    assert not any("PUNCTUAL" in line for line in first_job_commands(DEFAULT_ADDRESS, auth=False))
    commands = first_job_commands("http://127.0.0.1:9090/v1", auth=True)
    assert "export PUNCTUAL_URL=http://127.0.0.1:9090/v1" in commands
    assert any(line.startswith("export PUNCTUAL_TOKEN=") for line in commands)


def test_accepted_jobs_survive_kill_9(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data").start()
    at = datetime.now(UTC) + timedelta(milliseconds=700)
    asyncio.run(store_jobs(node, [future_job(at) for _ in range(1_000)]))
    eventually(lambda: call(node, "GET", "/stats")[1]["runs"].get("SUCCESS", 0) > 0)
    node.kill()
    node.start()
    try:
        eventually(lambda: call(node, "GET", "/stats")[1]["runs"].get("SUCCESS", 0) >= 1_000)
        runs = asyncio.run(list_runs(node))
    finally:
        node.stop()
    assert len({run["job_id"] for run in runs}) == len(runs) == 1_000
    assert {run["status"] for run in runs} == {"SUCCESS"}


def test_script_of_a_killed_node_is_ended_before_its_next_attempt(
    tmp_path: Path,
) -> None:
    (tmp_path / "open").mkdir()
    marks = tmp_path / "open" / "marks"
    code = f'echo "$$ $PUNCTUAL_ATTEMPT" >> {marks}; [ "$PUNCTUAL_ATTEMPT" = 2 ] || sleep 600'
    task = {"type": "script", "runtime": "bash", "code": code}
    opened = f"{tmp_path}/open:rw"
    node = RunningNode(tmp_path / "data", PUNCTUAL_SCRIPT_PATHS=opened).start()
    body = {"name": "long", "schedule_type": "IMMEDIATE", "task": task}
    job = call(node, "POST", "/jobs", body)[1]["job_id"]
    eventually(lambda: marks.exists() and marks.read_text().endswith("\n"))
    node.kill()
    node.start()
    try:
        eventually(lambda: call(node, "GET", f"/jobs/{job}")[1]["status"] == "COMPLETED")
    finally:
        node.stop()
    first, second = (line.split() for line in marks.read_text().splitlines())
    assert (first[1], second[1]) == ("1", "2")
    assert not Path(f"/proc/{first[0]}").exists()


def test_ctrl_c_stops_the_node_and_frees_the_port(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "data").start()
    task = {"type": "script", "runtime": "bash", "code": "sleep 600"}
    body = {"name": "long", "schedule_type": "IMMEDIATE", "task": task}
    job = call(node, "POST", "/jobs", body)[1]["job_id"]
    eventually(
        lambda: call(node, "GET", f"/jobs/{job}/status")[1]["latest_run"]["status"] == "RUNNING"
    )
    process = node._process
    assert process is not None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) == 0
    assert time.monotonic() - began < 10
    restarted = RunningNode(tmp_path / "data")
    restarted.port = node.port
    restarted.start()
    try:
        run = call(restarted, "GET", f"/jobs/{job}/status")[1]["latest_run"]
        assert run["attempt_number"] == 2
    finally:
        restarted.stop()
        assert process.stdout is not None
        process.stdout.close()


def test_second_node_on_the_same_folder_is_refused(node: RunningNode) -> None:
    assert "Another node" in refusal(node.folder)


def test_busy_port_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert str(port) in refusal(tmp_path / "data", port)


def test_unusable_data_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "file" in refusal(tmp_path / "file")
