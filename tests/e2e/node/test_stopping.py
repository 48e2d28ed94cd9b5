"""Ctrl-C and SIGTERM: runs may end first, a second signal stops them, and no run is lost."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.running import RunningNode, run_node
from tests.support.node.node_calls import call, eventually


def script(code: str) -> dict[str, str]:
    return {"type": "script", "runtime": "bash", "code": code}


def started(node: RunningNode, code: str, **fields: Any) -> str:
    body = {"name": "long", "schedule_type": "IMMEDIATE", "task": script(code), **fields}
    job: str = call(node, "POST", "/jobs", body)[1]["job_id"]
    eventually(lambda: latest(node, job).get("status") == "RUNNING")
    return job


def latest(node: RunningNode, job: str) -> dict[str, Any]:
    run: dict[str, Any] | None = call(node, "GET", f"/jobs/{job}/status")[1]["latest_run"]
    return run or {}


def ended(node: RunningNode, seconds: float) -> int:
    process = node._process
    assert process is not None
    code = process.wait(timeout=seconds)
    assert process.stdout is not None
    process.stdout.close()
    node._process = None
    return code


def send(node: RunningNode, number: int) -> None:
    assert node._process is not None
    node._process.send_signal(number)


def log_of(node: RunningNode) -> str:
    return (node.folder.parent / f"{node.folder.name}.log").read_text()


def a_start(folder: Path, seconds: int) -> RunningNode:
    return RunningNode(folder, PUNCTUAL_STOP_SECONDS=str(seconds)).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_ends_within_the_grace_period_is_not_interrupted(
    tmp_path: Path, number: int
) -> None:
    go = tmp_path / "go"
    node = a_start(tmp_path / "data", 60)
    job = started(node, f"until [ -e {go} ]; do sleep 0.05; done; echo done")
    send(node, number)
    eventually(lambda: '"event":"stopping"' in log_of(node))
    response = call(node, "POST", "/jobs", {"name": "late", "schedule_type": "IMMEDIATE"})
    assert response[0] == 202  # the job is stored, and starts with the next node
    go.touch()
    assert ended(node, 60) == 0
    with run_node(tmp_path / "data") as restarted:
        run = latest(restarted, job)
        assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)
        late = response[1]["job_id"]
        eventually(lambda: latest(restarted, late).get("status") == "SUCCESS")


def test_second_signal_stops_immediately_and_the_run_is_repeated(tmp_path: Path) -> None:
    node = a_start(tmp_path / "data", 3_600)
    job = started(node, "sleep 600")
    send(node, signal.SIGINT)
    eventually(lambda: '"event":"stopping"' in log_of(node))
    send(node, signal.SIGINT)
    assert ended(node, 30) == 0
    with run_node(tmp_path / "data") as restarted:
        run = latest(restarted, job)
        assert run["attempt_number"] == 2
        full = call(restarted, "GET", f"/jobs/{job}/runs/{run['run_id']}")[1]
        assert full["attempts"][0]["status"] == "LOST"
        call(restarted, "DELETE", f"/jobs/{job}")


def test_at_most_once_run_fails_if_it_is_interrupted(tmp_path: Path) -> None:
    node = a_start(tmp_path / "data", 0)
    job = started(node, "sleep 600", delivery="AT_MOST_ONCE")
    send(node, signal.SIGTERM)
    assert ended(node, 30) == 0
    with run_node(tmp_path / "data") as restarted:
        run = latest(restarted, job)
        assert (run["status"], run["reason"]["code"]) == ("FAILED", "LOST")


@pytest.mark.parametrize("deleted", ["data", "data/punctual.db", "data/punctual.db-wal"])
def test_node_with_deleted_data_reports_it_and_exits(tmp_path: Path, deleted: str) -> None:
    node = a_start(tmp_path / "data", 3_600)
    started(node, "sleep 600")
    lost = tmp_path / deleted
    if lost.is_dir():
        # The launcher may still write there, so the folder is renamed before its deletion.
        shutil.rmtree(lost.rename(tmp_path / "deleted"), ignore_errors=True)
    else:
        lost.unlink()
    # A commit of the node's own may find the loss first. Then it ends without an answer.
    with suppress(ConnectionError):
        status, refused = call(node, "POST", "/jobs", {"name": "a", "schedule_type": "IMMEDIATE"})
        assert (status, refused["code"]) == (503, "UNAVAILABLE")
    assert ended(node, 30) == 1
    assert "was deleted or replaced" in log_of(node).splitlines()[-1]


def test_default_data_folder_is_reported_when_created(tmp_path: Path) -> None:
    env = {**os.environ, "PUNCTUAL_PORT": "0", "PUNCTUAL_STOP_SECONDS": "0"}
    env.pop("PUNCTUAL_DATA", None)
    logs = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "punctual.node"],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            process.terminate()
            _, log = process.communicate(timeout=30)
            logs.append(log)
    assert f'"event":"data_folder_made","path":"{tmp_path}/.punctual"' in logs[0]
    assert "PUNCTUAL_DATA" in logs[0]
    assert "data_folder_made" not in logs[1]
    assert f'"data":"{tmp_path}/.punctual"' in logs[1]
