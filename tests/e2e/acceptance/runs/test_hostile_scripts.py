"""Hostile scripts end within their limits and reach nothing, wherever scripts run."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.support.acceptance import hostile
from tests.support.acceptance.contract import Api, Json, a_client, eventually, script, unique
from tests.support.acceptance.programs import compiled, program_task

pytestmark = pytest.mark.needs("script")

NOW = {"schedule_type": "IMMEDIATE", "max_retries": 0}
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
KEYS_VARIABLE = "PUNCTUAL_SCRIPT_KEYS"
"""In JSON the credentials of the role of scripts, where a rehearsal can get them."""


def python(code: str, *words: str, **fields: Json) -> Json:
    return {"type": "script", "runtime": "python", "code": code, "args": list(words), **fields}


class Runs(NamedTuple):
    api: Api
    runs: Mapping[str, Json]

    def output(self, case: str) -> str:
        run = self.runs[case]
        assert run["status"] == "SUCCESS", run["error_message"]
        return self.api.output(run).decode()


def region_and_endpoint() -> tuple[str, str]:
    """Return where a script sends its calls: to the emulator of a rehearsal, or to AWS."""
    return os.environ.get("AWS_REGION", "us-east-1"), os.environ.get("AWS_ENDPOINT_URL", "")


@pytest.fixture(scope="module")
def runs(shared: Api, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the ended runs of all attacks, which run beside each other."""

    def handed_over(code: str) -> Json:
        """Return a script that no executor waits for. To store 10 MB takes a busy machine long."""
        artifact_id = shared.upload(code.encode(), "main.sh")
        return {"type": "script", "runtime": "bash", "artifact_id": artifact_id}

    binary = shared.upload(compiled(tmp_path_factory.mktemp("program")), "program-binary")
    keys = json.loads(os.environ.get(KEYS_VARIABLE, "{}"))
    steal = python(hostile.STEAL_CREDENTIALS, *region_and_endpoint(), env=keys)
    tasks = {
        "processes": (program_task("binary", "fork-bomb", binary), 25),
        "one file": (script("exec truncate -s 2G big"), 25),
        "endless output": (handed_over("yes"), 2),
        "endless log": (handed_over("yes >&2"), 2),
        "child": (python(hostile.LEAVE_A_CHILD), 25),
        "credentials": (steal, 60),
    }
    jobs = {
        case: {"task": task, "timeout_seconds": seconds, "max_retries": 0}
        for case, (task, seconds) in tasks.items()
    }
    return Runs(shared, shared.results(jobs))


def test_fork_bomb_ends_at_its_limit(runs: Runs) -> None:
    run = runs.runs["processes"]
    assert (run["status"], run["exit_code"]) == ("FAILED", 137)
    assert run["error_message"] == (
        "The script had more than 256 processes at once, the limit of a run"
    )


def test_large_file_ends_at_its_limit(runs: Runs) -> None:
    run = runs.runs["one file"]
    assert (run["status"], run["exit_code"]) == ("FAILED", 153)
    assert run["error_message"].startswith("The script wrote more than ")
    assert "MB to one file, the limit of a run" in run["error_message"]


@pytest.mark.parametrize("kind", ["output", "log"])
def test_endless_output_is_cut_and_ends_at_the_timeout(runs: Runs, kind: str) -> None:
    run = runs.runs[f"endless {kind}"]
    assert run["status"] == "TIMED_OUT"
    assert (run["output_truncated"], run["log_truncated"]) == (kind == "output", True)
    assert len(runs.api.log(run)) == MAX_OUTPUT_BYTES
    if kind == "output":
        assert len(runs.api.output(run)) == MAX_OUTPUT_BYTES


def test_child_that_left_its_group_is_gone(runs: Runs) -> None:
    port = runs.output("child").strip()
    assert int(port) > 0, "it answered while the script ran"
    job = runs.api.create(**NOW, task=python(hostile.CALL_A_PORT, port), timeout_seconds=25)
    assert runs.api.output(runs.api.only_run(job["job_id"])) == b"refused\n"


def test_script_finds_no_credentials_and_may_do_nothing_with_those_of_its_function(
    runs: Runs,
) -> None:
    answer = json.loads(runs.output("credentials"))
    assert answer["found"] == []
    given = KEYS_VARIABLE in os.environ
    assert set(answer["calls"]) == ({"dynamodb", "ssm", "sqs", "s3"} if given else set())
    for text in answer["calls"].values():
        assert text[:3] in ("400", "403"), text
        assert "AccessDenied" in text


@contextmanager
def another_tenant(api: Api) -> Iterator[Api]:
    """Yield a caller of another tenant, or the same one where there is only one."""
    if "PUNCTUAL_TOKEN" not in os.environ:
        yield api
        return
    body = {"name": unique("acceptance"), "role": "admin", "tenant": unique("other")}
    token = api("POST", "/tokens", body).json()
    with a_client(api.url, token["token"]) as http:
        caller = Api(http)
        yield caller
        caller.clear()
        assert caller("DELETE", f"/tokens/{token['token_id']}").status_code == 200


def test_script_reaches_no_files_of_another_run(api: Api) -> None:
    secret = unique("secret")
    job = api.create(**NOW, task=python(hostile.SHOW_MY_FILES, secret), timeout_seconds=120)
    run = api.first_run(job["job_id"])
    eventually(lambda: api.log(run).endswith(b"end\n"))
    log = api.log(run)
    files = log.decode().split()[:-1]
    assert len(files) == 3
    for seconds in (25, 26):  # on AWS the second one is handed over
        with another_tenant(api) as other:
            task = python(hostile.TAKE_FILES, *files)
            taken = other.create(**NOW, task=task, timeout_seconds=seconds)
            assert json.loads(other.output(other.only_run(taken["job_id"]))) == []
    assert api.log(run) == log
    api.order(run["job_id"], f"runs/{run['run_id']}/cancel")
