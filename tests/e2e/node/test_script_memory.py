"""Real scripts of a node share its memory: what does not fit waits, and each end makes room."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.running import RunningNode, run_node
from tests.e2e.node.test_scripts import client, ended, eventually, output

TOTAL_MB = "700"
ENDLESS = "exec sleep 1000"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def a_script(code: str, memory_mb: int, **fields: Any) -> dict[str, Any]:
    task = {
        "type": "script",
        "runtime": "bash",
        "code": code,
        "resources": {"memory_mb": memory_mb},
    }
    return {"name": "n", "schedule_type": "IMMEDIATE", "max_retries": 0, "task": task, **fields}


def submit(http: httpx.Client, body: dict[str, Any]) -> str:
    response = http.post("/jobs", json=body)
    assert response.status_code == 202, response.text
    job_id: str = response.json()["job_id"]
    return job_id


def wait_for(http: httpx.Client, job_id: str, status: str) -> dict[str, Any]:
    def latest() -> Any:
        run = http.get(f"/jobs/{job_id}/status").json()["latest_run"]
        return run if run and run["status"] == status else None

    run: dict[str, Any] = eventually(latest)
    return run


def limits(http: httpx.Client) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = http.get("/stats").json()["limits"]
    return [limit for limit in values if limit["limit"] == "script_memory_mb"]


def test_script_that_can_never_fit_is_refused(data: Path) -> None:
    with run_node(data, PUNCTUAL_SCRIPT_MEMORY_MB=TOTAL_MB) as node, client(node) as http:
        assert http.post("/jobs", json=a_script("true", 700)).status_code == 202
        response = http.post("/jobs", json=a_script("true", 701))
        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["field"] == "task.resources.memory_mb"
        assert error["message"].startswith("must be at most 700")


@pytest.mark.parametrize("ending", ["cancel", "timeout", "failure"])
def test_waiting_script_starts_when_the_other_ends(data: Path, ending: str) -> None:
    fields = {"timeout_seconds": 2} if ending == "timeout" else {}
    code = "read -r line; sleep 1.5; exit 3" if ending == "failure" else ENDLESS
    with run_node(data, PUNCTUAL_SCRIPT_MEMORY_MB=TOTAL_MB) as node, client(node) as http:
        first = submit(http, a_script(code, 600, **fields))
        running = wait_for(http, first, "RUNNING")
        second = submit(http, a_script("echo done", 200))
        waiting = wait_for(http, second, "WAITING")
        assert waiting["reason"]["code"] == "RESOURCES"
        assert limits(http) == [{"limit": "script_memory_mb", "allowed": 700, "used": 600}]
        if ending == "cancel":
            http.post(f"/jobs/{first}/runs/{running['run_id']}/cancel").raise_for_status()
        done = ended(http, second)
        assert (done["status"], output(http, done)) == ("SUCCESS", "done\n")
        assert ended(http, first)["status"] in ("CANCELLED", "TIMED_OUT", "FAILED")
        eventually(lambda: limits(http)[0]["used"] == 0)


def test_killed_node_leaves_no_memory_reserved(data: Path) -> None:
    node = RunningNode(data, PUNCTUAL_SCRIPT_MEMORY_MB=TOTAL_MB).start()
    with client(node) as http:
        first = submit(http, a_script(ENDLESS, 600, delivery="AT_MOST_ONCE"))
        wait_for(http, first, "RUNNING")
        second = submit(http, a_script("echo done", 600))
        wait_for(http, second, "WAITING")
    node.kill()
    with run_node(data, PUNCTUAL_SCRIPT_MEMORY_MB=TOTAL_MB) as node, client(node) as http:
        assert ended(http, second)["status"] == "SUCCESS"
        assert ended(http, first)["status"] == "FAILED"
        eventually(lambda: limits(http)[0]["used"] == 0)


def test_job_beyond_a_lowered_total_fails_and_names_the_setting(data: Path) -> None:
    with run_node(data, PUNCTUAL_SCRIPT_MEMORY_MB=TOTAL_MB) as node, client(node) as http:
        later = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
        job_id = submit(http, a_script("true", 600, **later))
    with run_node(data, PUNCTUAL_SCRIPT_MEMORY_MB="500") as node, client(node) as http:
        http.post(f"/jobs/{job_id}/runNow", json={}).raise_for_status()
        run = ended(http, job_id)
        assert run["status"] == "FAILED"
        assert "task.resources.memory_mb must be at most 500" in run["error_message"]
        assert "PUNCTUAL_SCRIPT_MEMORY_MB" in run["error_message"]
