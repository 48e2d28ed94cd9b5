"""The handler of a script function: one environment for many runs of a tenant."""

import json
import os
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from punctual.runner.environment import RunnerEnvironment
from punctual.runner.function import carry_out, retire
from punctual.runner.http_client import HttpClient
from punctual.runner.runner_sandbox import choose_runner_sandbox, library_path
from punctual.runner.wiring import real_clock
from punctual.tasks.limits import RunLimits
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.task import DEFAULT_PROGRAM_PATH
from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import an_event, runner_zip

MB = 1024 * 1024


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


def an_environment(folder: Path, **fields: Any) -> RunnerEnvironment:
    """Return the environment of a function that owns `folder`, as a function owns `/tmp`."""
    runs_folder = folder / "runs"
    return RunnerEnvironment(
        runs_folder=runs_folder,
        cleared_folder=folder,
        sandbox=choose_runner_sandbox("none", runs_folder, DEFAULT_PROGRAM_PATH),
        children=Children(),
        http=HttpClient(),
        clock=real_clock(),
        program_path=DEFAULT_PROGRAM_PATH,
        **fields,
    )


def waited(api: ClaimsApi, code: str, **fields: Any) -> dict[str, Any]:
    return an_event(api, code, mode="wait", timeout_seconds=20, **fields)


def test_environment_serves_many_runs(api: ClaimsApi, tmp_path: Path) -> None:
    environment = an_environment(tmp_path)
    for number in range(3):
        end = carry_out(waited(api, f"echo {number}"), environment)
        assert (end.answer["status"], end.is_clean, end.exit_code) == ("SUCCESS", True, 0)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_run_outside_of_its_folder_are_removed(api: ClaimsApi, tmp_path: Path) -> None:
    code = (
        f"mkdir {tmp_path}/a; echo x > {tmp_path}/a/b; ln -s / {tmp_path}/c; chmod 0 {tmp_path}/a"
    )
    environment = an_environment(tmp_path)
    end = carry_out(waited(api, code), environment)
    assert (end.answer["exit_code"], end.answer["must_retire"]) == (0, False)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_crashed_predecessor_are_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "runs/run-old").mkdir(parents=True)
    (tmp_path / "runs/run-old/secret").write_text("x")
    an_environment(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs"]


def test_memory_of_a_script_leaves_room_for_the_runner(tmp_path: Path) -> None:
    environment = an_environment(tmp_path, memory_mb=640)
    assert [environment.allowed_memory_mb(mb) for mb in (64, 512, 4096)] == [64, 512, 512]
    assert an_environment(tmp_path).allowed_memory_mb(4096) == 4096
    assert an_environment(tmp_path, memory_mb=128).allowed_memory_mb(512) == 32


def test_script_has_no_more_memory_than_its_function(api: ClaimsApi, tmp_path: Path) -> None:
    environment = an_environment(tmp_path, memory_mb=128 + 48)
    code = "import time; x = bytearray(100_000_000); time.sleep(60)"
    event = waited(api, code) | {"task": {"runtime": "python", "code": code}}
    answer = carry_out(event, environment).answer
    assert answer["error"].startswith("The script used more than 48 MB of memory")


def test_limit_of_the_disk_follows_the_free_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = an_environment(tmp_path)

    def free(count: int) -> RunLimits:
        monkeypatch.setattr("shutil.disk_usage", lambda _folder: type("Usage", (), {"free": count}))
        return environment.limits()

    assert free(4096 * MB) == RunLimits()
    assert free(500 * MB).disk_bytes == 484 * MB
    assert free(0).disk_bytes == 16 * MB


def test_script_cannot_fill_the_disk(
    api: ClaimsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: type("Usage", (), {"free": 0}))
    code = "for n in 1 2 3; do head -c 9000000 /dev/zero > $n; done; sleep 60"
    answer = carry_out(waited(api, code), an_environment(tmp_path)).answer
    assert answer["error"] == "The script left more than 16 MB in its folder, the limit of a run"
    assert list(tmp_path.iterdir()) == []


def test_environment_with_a_surviving_process_takes_no_more_runs(
    api: ClaimsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = an_environment(tmp_path)
    monkeypatch.setattr("punctual.runner.environment._own_descendants", lambda: {4_000_000})
    first = carry_out(waited(api, "echo one"), environment)
    assert (first.answer["status"], first.answer["must_retire"]) == ("SUCCESS", True)

    second = carry_out(waited(api, f"touch {tmp_path}/touched"), environment)
    assert (second.answer["begun"], second.answer["must_retire"]) == (False, True)
    carry_out(an_event(api, f"touch {tmp_path}/touched"), environment)
    assert [finish["status"] for finish in api.finished] == ["RELEASED"]
    assert not (tmp_path / "touched").exists()


def test_environment_with_a_folder_that_stays_takes_no_more_runs(
    api: ClaimsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = an_environment(tmp_path)
    monkeypatch.setattr("punctual.runner.environment.clear_folder", lambda _folder: ["run-1"])
    assert carry_out(waited(api, "echo"), environment).answer["must_retire"]
    assert environment.is_retired


def test_detached_run_is_finished_before_the_environment_retires(
    api: ClaimsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = an_environment(tmp_path)
    monkeypatch.setattr("punctual.runner.environment._own_descendants", lambda: {4_000_000})
    end = carry_out(an_event(api, "echo one"), environment)
    assert (end.answer, environment.is_retired) == ({"format": 1, "status": "DETACHED"}, True)
    assert [finish["output_text"] for finish in api.finished] == ["one\n"]


class RuntimeApi(BaseHTTPRequestHandler):
    received: list[tuple[str, bytes]]
    status = 202

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


@contextmanager
def a_runtime_api(received: list[tuple[str, bytes]], status: int = 202) -> Iterator[str]:
    """Serve one response of a function, as Lambda does. Yield the address."""
    handler = type("Api", (RuntimeApi,), {"received": received, "status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        thread.join()


RESPONSE_PATH = "/2018-06-01/runtime/invocation/request-1/response"


@pytest.mark.parametrize(("status", "exits"), [(202, [1]), (403, [])])
def test_retired_environment_ends_once_the_answer_is_sent(status: int, exits: list[int]) -> None:
    received: list[tuple[str, bytes]] = []
    ended: list[int] = []
    with a_runtime_api(received, status) as address:
        url = f"http://{address}{RESPONSE_PATH}"
        answer = retire({"must_retire": True}, url, HttpClient(), ended.append)
    assert received == [(RESPONSE_PATH, b'{"must_retire": true}')]
    assert (ended, answer) == (exits, {"must_retire": True})


# A process of the run seems to survive, because the runner counts one more.
FUNCTION_PROCESS = """
import json, sys, types
from punctual.runner import environment, function
function._environment()
environment._own_descendants = lambda: {4_000_000}
context = types.SimpleNamespace(aws_request_id="request-1")
function.handler(json.load(sys.stdin), context)
print("still here")
"""


def test_process_of_a_function_ends_with_its_answer(api: ClaimsApi, tmp_path: Path) -> None:
    received: list[tuple[str, bytes]] = []
    with a_runtime_api(received) as address:
        process = subprocess.run(
            [sys.executable, "-c", FUNCTION_PROCESS],
            input=json.dumps(waited(api, "echo one")).encode(),
            capture_output=True,
            env={
                "AWS_LAMBDA_RUNTIME_API": address,
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "640",
                "PYTHONPATH": str(runner_zip()),
                "TMPDIR": str(tmp_path),
            },
            timeout=60,
            check=False,
        )
    assert (process.returncode, process.stdout, process.stderr) == (1, b"", b"")
    [(path, body)] = received
    answer = json.loads(body)
    assert (path, answer["must_retire"], b64decode(answer["output"])) == (
        RESPONSE_PATH,
        True,
        b"one\n",
    )


def test_retired_environment_without_lambda_returns_the_answer() -> None:
    ended: list[int] = []
    assert retire({"a": 1}, "", HttpClient(), ended.append) == {"a": 1}
    assert ended == []


def test_library_path_is_kept_where_python_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, object] = {"LIBDIR": "/var/lang/lib", "Py_ENABLE_SHARED": 1}
    monkeypatch.setattr("sysconfig.get_config_var", values.get)
    assert library_path({"LD_LIBRARY_PATH": "/lib64:/var/lang/lib"}) == "/var/lang/lib"
    assert library_path({"LD_LIBRARY_PATH": "/lib64"}) == ""
    values["Py_ENABLE_SHARED"] = 0
    assert library_path({"LD_LIBRARY_PATH": "/var/lang/lib"}) == ""


def test_library_path_reaches_script_and_launcher(api: ClaimsApi, tmp_path: Path) -> None:
    environment = an_environment(tmp_path, library_path="/var/lang/lib")
    answer = carry_out(waited(api, 'test "$LD_LIBRARY_PATH" = /var/lang/lib'), environment).answer
    assert (answer["status"], os.environ.get("LD_LIBRARY_PATH")) == ("SUCCESS", None)
