"""Secrets of a node process: kept over a crash, and a lost key stops the start."""

import os
import subprocess
import sys
from pathlib import Path

from bench.running import RunningNode, run_node
from punctual.client import Punctual

VALUE = "correct horse battery"
TASK = {
    "type": "script",
    "runtime": "bash",
    "code": 'echo "$KEY" | wc -c; echo "$KEY"',
    "env": {"KEY": "{{secret:bank}}"},
}


def client(node: RunningNode) -> Punctual:
    return Punctual(f"http://127.0.0.1:{node.port}/v1", "")


def output_of_a_run(api: Punctual) -> list[bytes]:
    job = api.jobs.create(
        name="prints",
        schedule_type="FUTURE",
        schedule_time="2199-01-01T00:00:00Z",
        task=TASK,
        max_retries=0,
    )
    run = api.wait_for(api.jobs.run(job))
    return api.runs.output(run.job_id, run.run_id).data.split()


def test_secret_survives_a_kill_of_the_node_and_stays_encrypted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_node(data) as node:
        with client(node) as api:
            api.secrets.set("bank", VALUE)
        node.kill()
        node.start()
        with client(node) as api:
            assert [secret.name for secret in api.secrets.list()] == ["bank"]
            assert output_of_a_run(api) == [b"22", b"[secret]"]
    files = [path for path in data.rglob("*") if path.is_file()]
    assert (data / "secrets.key") in files
    assert (data / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert [path for path in files if VALUE.encode() in path.read_bytes()] == []
    assert VALUE not in (tmp_path / "data.log").read_text()


def test_start_without_the_key_of_secrets_is_refused_in_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with run_node(data) as node, client(node) as api:
        api.secrets.set("bank", VALUE)
    key = (data / "secrets.key").read_bytes()
    (data / "secrets.key").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "punctual.node"],
        env={**os.environ, "PUNCTUAL_PORT": "0", "PUNCTUAL_DATA": str(data)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("punctual: The key of secrets ")
    assert "put the file back from a backup" in done.stderr
    assert done.stderr.count("\n") == 1
    (data / "secrets.key").write_bytes(key)
    with run_node(data) as node, client(node) as api:
        assert output_of_a_run(api) == [b"22", b"[secret]"]
