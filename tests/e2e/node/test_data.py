"""The data folder of a running node: its permissions, and a start after a power cut."""

import sqlite3
import stat
from pathlib import Path

import pytest

from bench.running import RunningNode, run_node
from tests.support.node.node_calls import call, eventually, refusal

SLEEPS = {"type": "script", "runtime": "bash", "code": "echo out; sleep 600"}
SPEAKS = {"type": "script", "runtime": "bash", "code": "echo out; echo err >&2"}


def started(node: RunningNode, task: dict[str, str]) -> str:
    body = {"name": "a", "schedule_type": "IMMEDIATE", "task": task}
    job: str = call(node, "POST", "/jobs", body)[1]["job_id"]
    return job


def status(node: RunningNode, job: str) -> str:
    run = call(node, "GET", f"/jobs/{job}/status")[1]["latest_run"]
    return "" if run is None else str(run["status"])


def log_of(node: RunningNode) -> str:
    return (node.folder.parent / f"{node.folder.name}.log").read_text()


def open_paths(folder: Path) -> list[str]:
    modes = {True: 0o700, False: 0o600}
    paths = [folder, *folder.rglob("*")]
    return [str(p) for p in paths if stat.S_IMODE(p.stat().st_mode) != modes[p.is_dir()]]


def test_node_files_are_private_to_its_user(tmp_path: Path) -> None:
    with run_node(tmp_path / "data", PUNCTUAL_AUTH="off") as node:
        job = started(node, SPEAKS)
        eventually(lambda: status(node, job) == "SUCCESS")
        sleeper = started(node, SLEEPS)
        eventually(lambda: any((node.folder / "groups").iterdir()))
        assert call(node, "GET", "/webhook-secret")[0] == 200
        assert call(node, "POST", "/tokens", {"name": "ci", "role": "viewer"})[0] == 201
        names = {path.name for path in node.folder.iterdir()}
        assert names >= {"punctual.db", "punctual.db-wal", "punctual.db-shm", "blobs", "groups"}
        assert names >= {"work", "lock", "token.key", "webhook.key"}
        assert open_paths(node.folder) == []
        assert call(node, "DELETE", f"/jobs/{sleeper}")[0] == 200
        eventually(lambda: status(node, sleeper) == "CANCELLED")


def test_start_closes_files_that_are_open_to_others(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        job = started(node, SPEAKS)
        eventually(lambda: status(node, job) == "SUCCESS")
    for path in [node.folder, *node.folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with run_node(tmp_path / "data") as restarted:
        assert open_paths(restarted.folder) == []
    assert '"event":"was_open_to_others"' in log_of(restarted)


@pytest.mark.parametrize("content", [b"", b'{"pid":1'])
def test_empty_process_group_file_does_not_prevent_a_start(tmp_path: Path, content: bytes) -> None:
    node = RunningNode(tmp_path / "data").start()
    job = started(node, SLEEPS)
    groups = node.folder / "groups"
    eventually(lambda: any(path.suffix != ".new" for path in groups.iterdir()))
    node.kill()
    (path,) = groups.iterdir()
    path.write_bytes(content)
    node.start()
    try:
        run = call(node, "GET", f"/jobs/{job}/status")[1]["latest_run"]
        assert (run["run_id"], run["attempt_number"]) == (path.name, 2)
        assert f'"event":"script_group_unreadable","run_id":"{path.name}"' in log_of(node)
        assert (groups / f"{path.name}.unreadable").read_bytes() == content
        call(node, "DELETE", f"/jobs/{job}")
        eventually(lambda: status(node, job) == "CANCELLED")
    finally:
        node.stop()


@pytest.mark.parametrize("name", ["punctual.db", "token.key", "webhook.key"])
def test_empty_key_or_database_file_prevents_a_start(tmp_path: Path, name: str) -> None:
    with run_node(tmp_path / "data") as node:
        assert call(node, "GET", "/webhook-secret")[0] == 200
        assert call(node, "POST", "/tokens", {"name": "ci", "role": "viewer"})[0] == 201
    (node.folder / name).write_bytes(b"")
    assert str(node.folder / name) in refusal(node.folder)


def test_unreadable_job_state_affects_no_other_job(tmp_path: Path) -> None:
    ticks = {"schedule_type": "CRON", "cron_expression": "* * * * * *"}
    with run_node(tmp_path / "data") as node:
        bad, good = (
            call(node, "POST", "/jobs", {"name": name, **ticks})[1]["job_id"]
            for name in ("bad", "good")
        )
    db = sqlite3.connect(node.folder / "punctual.db")
    with db:
        db.execute("UPDATE heads SET head = x'00ff00' WHERE job_id = ?", (bad,))
    db.close()
    with run_node(tmp_path / "data") as restarted:
        before = len(call(restarted, "GET", f"/jobs/{good}/runs")[1]["runs"])
        eventually(
            lambda: len(call(restarted, "GET", f"/jobs/{good}/runs")[1]["runs"]) >= before + 5
        )
        status, refused = call(restarted, "GET", f"/jobs/{bad}")
        assert (status, refused["code"]) == (503, "UNAVAILABLE")
        assert bad in refused["detail"]
        _, health = call(restarted, "GET", "/health")
        assert [warning["code"] for warning in health["warnings"]] == ["ROWS_UNREADABLE"]
        log = log_of(restarted)
        assert log.count('"event":"row_unreadable"') == 1
        # The evaluation of the timer and the claim of a queued run fail once each. The next tries
        # follow after 15 s and longer.
        assert log.count('"event":"look_failed"') <= 2
        assert '"event":"store_unavailable"' not in log
