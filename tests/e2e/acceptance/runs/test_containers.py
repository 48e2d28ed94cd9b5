"""Containers on AWS: an image as it is, an image with the runner, and long scripts."""

import os
from collections.abc import Iterator

import pytest

from tests.support.acceptance.contract import (
    Api,
    Json,
    eventually,
    has_long_scripts,
    script,
    unique,
)
from tests.support.acceptance.programs import zip_of

LONG_SECONDS = 1_000
COUNTER = "for number in 1 2 3; do echo $number; sleep 3; done; echo err >&2; exit 4"
WAITER = "echo begun; trap 'echo bye; exit 9' TERM; sleep 600 & wait"


@pytest.fixture
def runner_image() -> str:
    """Return an image with sh and the runner as its entry point."""
    return named("PUNCTUAL_TASK_IMAGE")


@pytest.fixture
def plain_image() -> str:
    """Return an image with sh, and without an entry point."""
    return named("PUNCTUAL_TASK_PLAIN_IMAGE")


@pytest.fixture
def secret(api: Api) -> Iterator[str]:
    """Return the placeholder of a secret."""
    name = unique("container-key")
    assert api("PUT", f"/secrets/{name}", {"value": "swordfish-7"}).status_code == 204
    yield f"{{{{secret:{name}}}}}"
    assert api("DELETE", f"/secrets/{name}").status_code == 204


def named(variable: str) -> str:
    image = os.environ.get(variable)
    if not image:
        pytest.skip(f"no image is named: {variable}")
    return image


def container(image: str, code: str) -> Json:
    return {"type": "container", "image": image, "command": ["sh", "-c", code]}


def started(api: Api, task: Json, **fields: Json) -> Json:
    """Return the run of a new job after its start."""
    job = api.create(schedule_type="IMMEDIATE", task=task, max_retries=0, **fields)
    return api.in_status(api.first_run(job["job_id"]), "RUNNING")


def cancel(api: Api, run: Json) -> None:
    api.order(run["job_id"], f"runs/{run['run_id']}/cancel")


@pytest.mark.needs("container")
def test_image_with_the_runner_has_a_live_log_an_output_and_an_exit_code(
    api: Api, runner_image: str
) -> None:
    run = started(api, container(runner_image, COUNTER))
    eventually(lambda: api.log(run).startswith(b"1\n"))
    assert api.run(run["job_id"], run["run_id"])["status"] == "RUNNING"
    ended = api.ended(run)
    assert (ended["status"], ended["exit_code"]) == ("FAILED", 4)
    assert ended["error_message"] == "Exit code 4\nerr"
    assert api.output(ended) == b"1\n2\n3\n"
    assert api.log(ended) == b"1\n2\n3\nerr\n"


@pytest.mark.needs("container")
def test_cancel_reaches_an_image_with_the_runner(api: Api, runner_image: str) -> None:
    run = started(api, container(runner_image, WAITER))
    eventually(lambda: api.log(run) == b"begun\n")
    cancel(api, run)
    ended = api.ended(run)
    assert (ended["status"], ended["error_message"]) == ("CANCELLED", "Cancelled")
    assert api.output(ended) == b"begun\nbye\n"


@pytest.mark.needs("container")
def test_image_as_it_is_has_a_log_and_an_exit_code(api: Api, plain_image: str) -> None:
    task = container(plain_image, 'echo "attempt $PUNCTUAL_ATTEMPT"; sleep 2; exit 5')
    job = api.create(schedule_type="IMMEDIATE", task=task, max_retries=0)
    ended = api.only_run(job["job_id"], within=90)
    assert (ended["status"], ended["exit_code"]) == ("FAILED", 5)
    assert api.log(ended) == b"attempt 1\n"


@pytest.mark.needs("container")
def test_cancel_stops_an_image_as_it_is(api: Api, plain_image: str) -> None:
    run = started(api, container(plain_image, "exec sleep 600"))
    cancel(api, run)
    assert api.ended(run, within=90)["status"] == "CANCELLED"


@pytest.mark.needs("container")
def test_secret_of_an_image_with_the_runner_is_masked(
    api: Api, runner_image: str, secret: str
) -> None:
    code = 'echo "$KEY"; echo "$KEY" | tr a-z A-Z'
    task = {**container(runner_image, code), "env": {"KEY": secret}}
    job = api.create(schedule_type="IMMEDIATE", task=task, max_retries=0)
    assert api.output(api.only_run(job["job_id"])) == b"[secret]\nSWORDFISH-7\n"


@pytest.mark.needs("container", "script")
def test_long_script_has_a_live_log_an_output_and_an_exit_code(api: Api) -> None:
    skip_without_long_scripts(api)
    run = started(api, script(COUNTER), timeout_seconds=LONG_SECONDS)
    eventually(lambda: api.log(run).startswith(b"1\n"))
    ended = api.ended(run)
    assert (ended["status"], ended["exit_code"]) == ("FAILED", 4)
    assert ended["error_message"] == "Exit code 4\nerr"
    assert api.output(ended) == b"1\n2\n3\n"


@pytest.mark.needs("container", "script")
def test_cancel_reaches_a_long_script(api: Api) -> None:
    skip_without_long_scripts(api)
    run = started(api, script(WAITER), timeout_seconds=LONG_SECONDS)
    eventually(lambda: api.log(run) == b"begun\n")
    cancel(api, run)
    ended = api.ended(run)
    assert (ended["status"], ended["error_message"]) == ("CANCELLED", "Cancelled")
    assert api.output(ended) == b"begun\nbye\n"


@pytest.mark.needs("container", "script")
def test_long_script_may_be_an_artifact_with_a_secret(api: Api, secret: str) -> None:
    skip_without_long_scripts(api)
    code = b"import os, rows; print(rows.ROWS, os.environ['KEY'][::-1])"
    artifact = api.upload(zip_of({"main.py": code, "rows.py": b"ROWS = [1, 2]"}))
    task = {
        "type": "script",
        "runtime": "python",
        "artifact_id": artifact,
        "env": {"KEY": secret},
    }
    job = api.create(schedule_type="IMMEDIATE", task=task, timeout_seconds=LONG_SECONDS)
    ended = api.only_run(job["job_id"])
    assert (ended["status"], api.output(ended)) == ("SUCCESS", b"[1, 2] 7-hsifdrows\n")


def skip_without_long_scripts(api: Api) -> None:
    if not has_long_scripts(api):
        pytest.skip("this installation has no image for scripts of over 14 minutes")
