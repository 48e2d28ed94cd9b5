"""A node with damaged files reports it, and continues only if no data can be lost."""

import sqlite3
from pathlib import Path

import httpx

from bench.running import RunningNode, run_node
from tests.e2e.node.test_stopping import ended
from tests.integration.sqlite.test_database_damage import overwrite_table
from tests.support.node.node_calls import call, eventually

SPEAKS = {"type": "script", "runtime": "bash", "code": "echo out; echo err >&2"}
PATIENCE = 60.0


def log_of(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.log").read_text()


def blob_of(node: RunningNode, kind: str) -> Path:
    """Return the file of the only log or output. Both differ in size."""
    size = {"logs": 8, "output": 4}[kind]
    files = [path for path in (node.folder / "blobs").rglob("*") if path.is_file()]
    (file,) = [path for path in files if path.stat().st_size == size]
    return file


def test_truncated_log_and_output_are_marked_as_damaged(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        body = {"name": "a", "schedule_type": "IMMEDIATE", "task": SPEAKS}
        job = call(node, "POST", "/jobs", body)[1]["job_id"]
        eventually(lambda: call(node, "GET", f"/jobs/{job}/runs?status=SUCCESS")[1]["runs"] != [])
        (run,) = call(node, "GET", f"/jobs/{job}/runs")[1]["runs"]
        at = f"http://127.0.0.1:{node.port}/v1/jobs/{job}/runs/{run['run_id']}"
        complete = httpx.get(f"{at}/output", trust_env=False)
        assert (complete.text, complete.headers["x-output-truncated"]) == ("out\n", "false")
        log, output = blob_of(node, "logs"), blob_of(node, "output")
        prefix = log.read_text()[:5]
        log.write_text(prefix)
        output.write_text("ou")
        cut = httpx.get(f"{at}/output", trust_env=False)
        assert (cut.status_code, cut.text) == (200, "ou")
        assert cut.headers["x-output-truncated"] == "true"
        cut = httpx.get(f"{at}/logs", trust_env=False)
        assert cut.text == f"{prefix}\n[The log is damaged: 3 bytes cannot be read.]\n"
        assert cut.headers["x-next-offset"] == "8"
        assert httpx.get(f"{at}/logs?after=8", trust_env=False).text == ""
        log.unlink()
        lost = httpx.get(f"{at}/logs", trust_env=False)
        assert lost.text == "\n[The log is damaged: 8 bytes cannot be read.]\n"


def test_damaged_table_is_reported_at_start_and_stops_the_node_on_use(
    tmp_path: Path,
) -> None:
    with run_node(tmp_path / "data") as node:
        pass
    overwrite_table(node.folder, "receipts")
    restarted = RunningNode(node.folder).start()
    try:
        eventually(lambda: call(restarted, "GET", "/health")[1]["warnings"] != [])
        (warning,) = call(restarted, "GET", "/health")[1]["warnings"]
        assert warning["code"] == "DATABASE_DAMAGED"
        assert '"event":"database_damaged"' in log_of(node.folder)
        with httpx.Client(
            base_url=f"http://127.0.0.1:{restarted.port}/v1", trust_env=False
        ) as client:
            body = {"name": "a", "schedule_type": "IMMEDIATE"}
            refused = client.post("/jobs", json=body, headers={"Idempotency-Key": "k"})
        assert (refused.status_code, refused.json()["code"]) == (503, "UNAVAILABLE")
        assert ended(restarted, PATIENCE) == 1
        last = log_of(node.folder).splitlines()[-1]
        assert "is damaged" in last
        assert "Restore it from a backup" in last
    finally:
        restarted.stop()
    db = sqlite3.connect(node.folder / "punctual.db")
    assert db.execute("SELECT count(*) FROM heads").fetchone() == (0,), "nothing was written"
    db.close()
