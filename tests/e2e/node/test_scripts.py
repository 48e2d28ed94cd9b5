"""Scripts on a node: settings, tenants, and attacks on the node."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.running import RunningNode, run_node
from punctual.tasks.script import bubblewrap
from tests.integration.tasks.test_script_survivors import CLEARED
from tests.support.kernel import needs
from tests.support.scripts import attacks
from tests.support.scripts.other_user import environment, identity, python_for

ATTACKS = Path(attacks.__file__).read_text()
SECONDS = 40.0
Tokens = dict[str, str]


def client(node: RunningNode, token: str = "") -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{node.port}/v1"
    return httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False)


def job(code: str, runtime: str = "bash", payload: Any = None, **fields: Any) -> dict[str, Any]:
    task = {"type": "script", "runtime": runtime, "code": code}
    once = {"name": "n", "schedule_type": "IMMEDIATE", "max_retries": 0, "payload": payload}
    return {**once, "task": task, **fields}


def eventually(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.05)
    return result


def ended(http: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return the latest run of a job after its end."""

    def latest() -> Any:
        run = http.get(f"/jobs/{job_id}/status").json()["latest_run"]
        return run if run and run["end_time"] else None

    run: dict[str, Any] = eventually(latest)
    return run


def run(http: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    response = http.post("/jobs", json=body)
    assert response.status_code == 202, response.text
    return ended(http, response.json()["job_id"])


def output(http: httpx.Client, run: dict[str, Any]) -> str:
    return http.get(f"/jobs/{run['job_id']}/runs/{run['run_id']}/output").text


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def tokens(data: Path) -> Tokens:
    """Return an editor token of each tenant, created while the node requires no tokens."""
    with run_node(data) as node, client(node) as http:
        return {
            tenant: http.post(
                "/tokens", json={"name": tenant, "role": "editor", "tenant": tenant}
            ).json()["token"]
            for tenant in ("local", "acme")
        }


def pid_of(node: RunningNode) -> int:
    return int((node.folder / "lock").read_text())


def refusal(folder: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "punctual.node"],
        env={**os.environ, "PUNCTUAL_PORT": "0", "PUNCTUAL_DATA": str(folder), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


@needs("landlock scopes")
def test_health_names_the_sandbox_in_use(data: Path) -> None:
    with run_node(data) as node, client(node) as http:
        assert http.get("/health").json()["sandbox"] == "landlock"
    with run_node(data, PUNCTUAL_SANDBOX="none") as node, client(node) as http:
        assert http.get("/health").json()["sandbox"] == "none"


def test_bubblewrap_runs_the_scripts_of_a_node(data: Path) -> None:
    if problem := bubblewrap.find_program(os.environ["PATH"])[1]:
        pytest.skip(problem)
    with run_node(data, PUNCTUAL_SANDBOX="bubblewrap") as node, client(node) as http:
        assert http.get("/health").json()["sandbox"] == "bubblewrap"
        done = run(http, job("echo hello from $(readlink /proc/self)"))
        assert output(http, done) == "hello from 3\n"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PUNCTUAL_SANDBOX": "jail"}, "PUNCTUAL_SANDBOX must be one of auto, landlock"),
        (
            {"PUNCTUAL_SANDBOX": "bubblewrap", "PATH": "/nowhere"},
            "PUNCTUAL_SANDBOX=bubblewrap is not available: bubblewrap is not installed.",
        ),
        ({"PUNCTUAL_SCRIPT_PATHS": "/srv"}, "PUNCTUAL_SCRIPT_PATHS is a list of absolute paths"),
        (
            {"PUNCTUAL_SCRIPT_MEMORY_MB": "2GB"},
            "PUNCTUAL_SCRIPT_MEMORY_MB must be a whole number of megabytes, at least 64; got",
        ),
        (
            {"PUNCTUAL_SCRIPT_PATHS": "/:r"},
            "PUNCTUAL_SCRIPT_PATHS must not name the data folder",
        ),
    ],
)
def test_wrong_setting_prevents_a_start(data: Path, env: dict[str, str], expected: str) -> None:
    assert refusal(data, **env).startswith(f"punctual: {expected}")


@needs("landlock scopes")
def test_script_paths_are_open_to_tenant_local_only(
    data: Path, tmp_path: Path, tokens: Tokens
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    env = {"PUNCTUAL_AUTH": "on", "PUNCTUAL_SCRIPT_PATHS": f"{shared}:rw"}
    with run_node(data, **env) as node:
        statuses = {}
        for tenant, token in tokens.items():
            with client(node, token) as http:
                done = run(http, job(f"echo $0 > {shared}/{tenant}"))
                statuses[tenant] = done["status"]
                if tenant == "acme":
                    assert "PUNCTUAL_SCRIPT_PATHS" in done["error_message"]
    assert statuses == {"local": "SUCCESS", "acme": "FAILED"}
    assert [path.name for path in shared.iterdir()] == ["local"]


def test_other_tenants_cannot_run_scripts_without_a_sandbox(data: Path, tokens: Tokens) -> None:
    yearly = {"schedule_type": "CRON", "cron_expression": "0 0 1 1 *"}
    with run_node(data, PUNCTUAL_AUTH="on") as node, client(node, tokens["acme"]) as http:
        if http.get("/health").json()["sandbox"] == "none":
            pytest.skip("no sandbox here that keeps processes apart")
        job_id = http.post("/jobs", json=job("echo", **yearly)).json()["job_id"]
    with run_node(data, PUNCTUAL_AUTH="on", PUNCTUAL_SANDBOX="none") as node:
        with client(node, tokens["acme"]) as http:
            refused = http.post("/jobs", json=job("echo"))
            assert refused.status_code == 422
            (error,) = refused.json()["errors"]
            assert error["field"] == "task.type"
            assert error["message"].startswith("script tasks are for tenant local only")
            (batched,) = http.post("/jobs/batch", json={"jobs": [job("echo")]}).json()["results"]
            assert batched["status"] == 422
            assert http.put(f"/jobs/{job_id}", json={"name": "other"}).status_code == 422
            assert http.post("/jobs", json={**job(""), "task": None}).status_code == 202
            # A task that another sandbox accepted does not run under this one.
            assert http.post(f"/jobs/{job_id}/runNow").status_code == 202
            failed = ended(http, job_id)
            assert failed["status"] == "FAILED"
            assert "script tasks are for tenant local only" in failed["error_message"]
        with client(node, tokens["local"]) as http:
            assert run(http, job("echo"))["status"] == "SUCCESS"


@needs("landlock scopes", "seccomp")
@pytest.mark.parametrize("sandbox", ["landlock", "bubblewrap"])
def test_script_of_an_editor_cannot_attack_the_node(
    data: Path, tokens: Tokens, sandbox: str
) -> None:
    if sandbox == "bubblewrap" and (problem := bubblewrap.find_program(os.environ["PATH"])[1]):
        pytest.skip(problem)
    env = {"PUNCTUAL_AUTH": "on", "PUNCTUAL_SANDBOX": sandbox, "NODES_SECRET": "hush"}
    other = data / "work" / "run-other"
    with run_node(data, **env) as node, client(node, tokens["acme"]) as http:
        other.mkdir(parents=True)
        (other / "secret").write_text("of another run")
        assert http.put("/secrets/bank", json={"value": "hush"}).status_code == 204
        target = {"node": pid_of(node), "data": str(data), "bus": str(data), "other": str(other)}
        kill = f"\nos.kill({pid_of(node)}, signal.SIGKILL)\n"
        done = run(http, job(ATTACKS + kill, "python", target))
        attacks_found = json.loads(output(http, done))
        assert done["status"] == "FAILED"  # because the kill raised
        assert http.get("/whoami").json()["tenant"] == "acme"
        assert (other / "secret").read_text() == "of another run"
    succeeded = {name for name, (got_it, _) in attacks_found.items() if got_it}
    assert succeeded == ({"change_the_rights_of_a_folder"} if sandbox == "landlock" else set())
    assert attacks_found.keys() == attacks.ATTACKS.keys()


def test_process_that_outlives_launcher_and_node_is_killed_at_start(data: Path) -> None:
    code = "setsid sleep 1000 & echo $PPID $$ $!; sleep 1000"
    with run_node(data, PUNCTUAL_SANDBOX="none") as node:
        with client(node) as http:
            job_id = http.post("/jobs", json=job(code)).json()["job_id"]
            run_id = eventually(lambda: http.get(f"/jobs/{job_id}/runs").json()["runs"])[0][
                "run_id"
            ]
            logs = f"/jobs/{job_id}/runs/{run_id}/logs"
            match = eventually(lambda: re.fullmatch(r"(\d+) (\d+) (\d+)\n", http.get(logs).text))
        launcher, script, detached = map(int, match.groups())
        # Stop the launcher first, so that neither process can end the children of the other.
        os.kill(launcher, signal.SIGSTOP)
        node.kill()
        os.kill(launcher, signal.SIGKILL)
        assert Path(f"/proc/{detached}").exists()
        node.start()
        eventually(lambda: not Path(f"/proc/{detached}").exists())
        assert not Path(f"/proc/{script}").exists()


def test_process_that_hides_from_its_launcher_is_killed_with_its_run(data: Path) -> None:
    """The process has no run id in its environment, so the node must adopt it."""
    with run_node(data, PUNCTUAL_SANDBOX="none") as node, client(node) as http:
        done = run(http, job(CLEARED, "python"))
        assert done["status"] == "FAILED"
        logs = http.get(f"/jobs/{done['job_id']}/runs/{done['run_id']}/logs").text
        assert not Path(f"/proc/{int(logs)}").exists()


def test_node_process_is_protected_from_its_own_user(tmp_path: Path) -> None:
    """As root the test uses another user, because root may read all processes."""
    user = "nobody" if os.geteuid() == 0 else "ours"
    python = python_for(user)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        env = environment(PUNCTUAL_PORT="0", PUNCTUAL_DATA=f"{folder}/data")
        command = [python, "-m", "punctual.node"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, **identity(user)) as node:
            try:
                assert node.stdout is not None
                assert b"ready" in node.stdout.readline()
                assert Path(f"/proc/{node.pid}/environ").stat().st_uid == 0
                program_text = f"import os; os.listdir('/proc/{node.pid}/fd')"
                peer_command = [python, "-c", program_text]
                peer = subprocess.run(
                    peer_command, stderr=subprocess.PIPE, check=False, **identity(user)
                )
                assert b"PermissionError" in peer.stderr
            finally:
                node.terminate()


def logged(folder: Path, event: str) -> Iterator[dict[str, Any]]:
    for line in (folder.parent / f"{folder.name}.log").read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == event:
            yield entry


def test_node_without_a_sandbox_logs_a_warning(data: Path, tmp_path: Path) -> None:
    """The system call fails, as on a kernel without Landlock."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "from punctual.tasks.script import landlock\nlandlock.CREATE_RULESET = 100_000\n"
    )
    env = {"PYTHONPATH": str(site), "PATH": "/nowhere"}
    with run_node(data, **env) as node, client(node) as http:
        assert http.get("/health").json()["sandbox"] == "none"
    (warning,) = logged(data, "scripts_have_no_sandbox")
    assert warning["level"] == "WARNING"
    with run_node(data, PUNCTUAL_SANDBOX="none", **env):
        pass
    assert len(list(logged(data, "scripts_have_no_sandbox"))) == 1
