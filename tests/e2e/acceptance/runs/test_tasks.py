"""Tasks: scripts, HTTP calls, events and placeholders, with their output and logs."""

import json

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, script, unique
from tests.support.acceptance.target import Target

NOW = {"schedule_type": "IMMEDIATE"}
FAST = {"backoff_seconds": 0, "jitter": False}


def outcome(api: Api, task: Json, **fields: Json) -> Json:
    job = api.create(**{**NOW, "retry": FAST, "task": task, **fields})
    return api.only_run(job["job_id"])


@pytest.mark.needs("script")
def test_script_reads_its_payload_and_its_output_is_stored(api: Api) -> None:
    code = "cat; echo err >&2; echo $PUNCTUAL_RUN_ID $PUNCTUAL_JOB_ID"
    run = outcome(api, script(code), payload={"a": [1, None], "ü": "é"})
    assert (run["status"], run["exit_code"]) == ("SUCCESS", 0)
    out = api.output(run).decode()
    assert out == f'{{"a":[1,null],"ü":"é"}}\n{run["run_id"]} {run["job_id"]}\n'
    logs = api.output(run, "logs").decode()
    assert "err\n" in logs
    assert run["run_id"] in logs
    assert api.output(run, "logs", after=len(logs.encode()) - 4).decode() == logs[-4:]
    assert api.output(run, "logs", after=len(logs.encode())) == b""
    assert run["output_url"]
    assert run["log_url"]


@pytest.mark.needs("script")
def test_script_has_a_cleared_environment(api: Api) -> None:
    run = outcome(api, script("env | cut -d= -f1; pwd", env={"MINE": "1"}))
    names = set(api.output(run).decode().split())
    variables = {name for name in names if not name.startswith(("PUNCTUAL_", "/"))}
    assert {"PATH", "HOME", "TMPDIR", "LANG", "MINE"} <= variables
    assert variables <= {"PATH", "HOME", "TMPDIR", "LANG", "MINE", "PWD", "SHLVL", "_", "OLDPWD"}


@pytest.mark.needs("script")
def test_python_script_receives_arguments(api: Api) -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read())"
    run = outcome(api, {"type": "script", "runtime": "python", "code": code, "args": ["a b", "c"]})
    assert api.output(run) == b"['a b', 'c'] null\n\n"


@pytest.mark.needs("script")
def test_failed_script_reports_its_error(api: Api) -> None:
    code = 'echo out; head -c 5000 /dev/zero | tr "\\0" x >&2; echo THE END >&2; exit 9'
    run = outcome(api, script(code), max_retries=0)
    assert (run["status"], run["exit_code"]) == ("FAILED", 9)
    assert run["error_message"].rstrip().endswith("THE END")
    assert 2_000 <= len(run["error_message"]) < 2_500
    assert api.output(run) == b"out\n"


@pytest.mark.needs("script")
def test_logs_can_be_followed_during_a_run(api: Api) -> None:
    job_id = api.create(**NEVER_SOON, task=script("echo one; sleep 30; echo two"))["job_id"]
    run = api.in_status(api.run_now(job_id), "RUNNING")
    assert eventually(lambda: api.output(run, "logs")) == b"one\n"
    assert api.output(run, "logs", after=4) == b""
    assert api.output(run, "logs", after=2) == b"e\n"
    path = f"/jobs/{job_id}/runs/{run['run_id']}/logs"
    for wrong in ("-1", "x", "1.5"):
        assert api("GET", path, after=wrong).status_code == 422


@pytest.mark.needs("script")
def test_output_is_stored_as_bytes_and_truncated_at_its_limit(api: Api) -> None:
    run = outcome(api, script(r"printf '\000\377\n'"))
    assert api.output(run) == b"\x00\xff\n"
    run = outcome(api, script("head -c 11000000 /dev/zero"), timeout_seconds=60)
    assert run["status"] == "SUCCESS"
    assert len(api.output(run)) == 10 * 1024 * 1024
    assert run["output_truncated"] is True


@pytest.mark.needs("script")
def test_discard_stores_no_output_and_logs_of_a_script(api: Api) -> None:
    run = outcome(api, script("echo out; echo err >&2; exit 3"), output="discard", max_retries=0)
    assert (run["status"], run["exit_code"], run["output_discarded"]) == ("FAILED", 3, True)
    assert (run["output_url"], run["log_url"]) == (None, None)
    assert "err" in run["error_message"], "the error still says why"
    path = f"/jobs/{run['job_id']}/runs/{run['run_id']}"
    for kind in ("output", "logs"):
        answer = api("GET", f"{path}/{kind}")
        assert answer.status_code == 404
        assert f"no {kind}: its job discards" in answer.json()["detail"]


def test_discard_stores_no_response_of_an_http_task(api: Api, target: Target) -> None:
    task = {"type": "http", "url": target.url(f"/{unique('discard')}")}
    run = outcome(api, task, output="discard")
    assert (run["status"], run["http_status"], run["output_discarded"]) == ("SUCCESS", 200, True)
    assert api("GET", f"/jobs/{run['job_id']}/runs/{run['run_id']}/output").status_code == 404
    kept_run = outcome(api, task)
    assert (kept_run["output_discarded"], bool(kept_run["output_url"])) == (False, True)


def test_discard_stores_no_event_id(api: Api) -> None:
    run = outcome(api, {"type": "event"}, output="discard")
    assert (run["status"], run["output_url"], run["output_discarded"]) == ("SUCCESS", None, True)


def test_event_task_publishes_an_event(api: Api) -> None:
    run = outcome(api, {"type": "event", "detail_type": "Night {{attempt}}"}, payload={"a": 1})
    assert run["status"] == "SUCCESS"
    assert api.output(run).strip()


def test_http_task_sends_a_request(api: Api, target: Target) -> None:
    path = f"/{unique('post')}"
    task = {"type": "http", "url": target.url(path), "headers": {"X-Mine": "1"}}
    run = outcome(api, task, payload={"a": [1, 2]})
    assert run["status"] == "SUCCESS"
    (call,) = target.of(path)
    assert (call.method, json.loads(call.body)) == ("POST", {"a": [1, 2]})
    assert call.headers["idempotency-key"] == run["run_id"]
    assert call.headers["content-length"] == str(len(call.body))
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-mine"] == "1"
    assert json.loads(api.output(run)) == {"seen": 0, "path": path}
    shown_run = json.dumps(run)
    assert "X-Target" in shown_run or "x-target" in shown_run
    assert 200 in run.values() or 200 in run.get("response", {}).values()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
def test_http_task_supports_methods_and_bodies(api: Api, target: Target, method: str) -> None:
    path = f"/{unique('m')}"
    task: Json = {"type": "http", "url": target.url(path), "method": method}
    if method in ("PUT", "PATCH"):
        task["body"] = {"own": "{{payload.n}}", "text": "n={{payload.n}}"}
    assert outcome(api, task, payload={"n": 7})["status"] == "SUCCESS"
    (call,) = target.of(path)
    assert call.method == method
    if "body" in task:
        assert json.loads(call.body) == {"own": 7, "text": "n=7"}


@pytest.mark.parametrize(
    ("statuses", "status", "calls"),
    [
        ("404", "FAILED", 1),
        ("400", "FAILED", 1),
        ("503/200", "SUCCESS", 2),
        ("500", "FAILED", 3),
        ("429/200", "SUCCESS", 2),
        ("408/425/204", "SUCCESS", 3),
        ("302", "FAILED", None),
    ],
)
def test_http_status_decides_outcome_and_retries(
    api: Api, target: Target, statuses: str, status: str, calls: int | None
) -> None:
    path = f"/{statuses}/{unique('s')}"
    run = outcome(api, {"type": "http", "url": target.url(path)}, max_retries=2)
    assert run["status"] == status
    keys = {call.headers["idempotency-key"] for call in target.of(path)}
    assert keys == {run["run_id"]}
    if calls is not None:
        assert len(target.of(path)) == len(run["attempts"]) == calls
    if status == "FAILED":
        assert statuses in run["error_message"]


def test_redirects_are_followed_if_configured(api: Api, target: Target) -> None:
    path = f"/302/{unique('r')}"
    task = {"type": "http", "url": target.url(path), "method": "GET", "follow_redirects": 1}
    assert outcome(api, task)["status"] == "SUCCESS"
    assert len(target.of(path)) == 1
    assert any(call.path.startswith("/landed") for call in target.calls)


def test_unreachable_server_is_retried(api: Api) -> None:
    run = outcome(api, {"type": "http", "url": "http://127.0.0.1:1/"}, max_retries=1)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 2)
    assert run["error_message"]


def test_placeholders_are_replaced(api: Api, target: Target) -> None:
    name = unique("p")
    payload = {"key": "a b/c?d&ü", "obj": {"x": [1]}, "no": None}
    task = {
        "type": "http",
        "url": target.url(f"/{name}/{{{{payload.key}}}}?r={{{{run_id}}}}"),
        "headers": {"X-Job": "{{job_id}}", "X-Attempt": "{{attempt}}"},
        "body": {
            "whole": "{{payload.obj}}",
            "null": "{{payload.no}}",
            "attempt": "{{attempt}}",
            "mixed": "at {{scheduled_time}}!",
        },
    }
    run = outcome(api, task, payload=payload)
    assert run["status"] == "SUCCESS"
    (call,) = [call for call in target.calls if name in call.path]
    assert call.path == f"/{name}/a%20b%2Fc%3Fd%26%C3%BC?r={run['run_id']}"
    assert (call.headers["x-job"], call.headers["x-attempt"]) == (run["job_id"], "1")
    body = json.loads(call.body)
    assert body["whole"] == {"x": [1]}
    assert (body["null"], body["attempt"]) == (None, 1)
    assert body["mixed"] == f"at {run['scheduled_time']}!"


@pytest.mark.needs("script")
def test_script_code_keeps_placeholders_and_arguments_replace_them(api: Api) -> None:
    run = outcome(api, script('echo "{{run_id}}" "$1"', args=["{{payload.x}}"]), payload={"x": "y"})
    assert api.output(run) == b"{{run_id}} y\n"


def test_missing_placeholder_key_fails_without_a_retry(api: Api, target: Target) -> None:
    path = f"/{unique('gone')}"
    task = {"type": "http", "url": target.url(path), "body": "{{payload.nope}}"}
    run = outcome(api, task, payload={"a": 1}, max_retries=3)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 1)
    assert "nope" in run["error_message"]
    assert target.of(path) == []


def test_payload_cannot_inject_headers(api: Api, target: Target) -> None:
    path = f"/{unique('crlf')}"
    task = {"type": "http", "url": target.url(path), "headers": {"X-A": "{{payload.a}}"}}
    run = outcome(api, task, payload={"a": "1\r\nX-Evil: yes"}, max_retries=0)
    assert run["status"] == "FAILED"
    assert all("x-evil" not in call.headers for call in target.of(path))


@pytest.mark.needs("script")
def test_script_leaves_no_process_running(api: Api) -> None:
    run = outcome(api, script("sleep 300 & echo $!"))
    assert run["status"] == "SUCCESS"
    pid = int(api.output(run))
    check = outcome(api, script(f"kill -0 {pid} 2>/dev/null && echo alive || echo gone"))
    assert api.output(check) == b"gone\n"
