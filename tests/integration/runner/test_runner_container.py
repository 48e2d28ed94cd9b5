"""The runner as entry point of a container: the image's command, environment and user."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.runner import container_command
from punctual.runner.container_command import ContainerCommand
from punctual.runner.session import UNREPORTED_EXIT_CODE
from punctual.tasks.contract import StopSignal
from punctual.tasks.script.survivors import Children
from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import an_event, run_in_process, started_runner
from tests.support.scripts.script_runs import Log, an_attempt


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


def a_container_event(api: ClaimsApi, *command: str, **fields: Any) -> dict[str, Any]:
    task = {"type": "container", "command": list(command), **fields.pop("task", {})}
    event = an_event(api, None, **fields)
    return event | {"task": task}


def test_command_of_the_image_runs_with_its_environment(api: ClaimsApi, tmp_path: Path) -> None:
    event = a_container_event(api, task={"env": {"MINE": "1"}})
    code = 'cat; echo "$OF_IMAGE $MINE $PUNCTUAL_ATTEMPT ${PUNCTUAL_RUN_URL:-hidden}"; pwd; exit 4'
    ended = run_in_process(event, tmp_path, "sh", "-c", code, OF_IMAGE="image")
    [finish] = api.finished
    assert finish["output_text"] == f'{{"n":1}}\nimage 1 2 hidden\n{tmp_path}\n'
    assert (finish["status"], finish["exit_code"], ended.exit_code) == ("FAILED", 4, 4)


def test_command_of_the_job_replaces_that_of_the_image(api: ClaimsApi, tmp_path: Path) -> None:
    event = a_container_event(api, "echo", "from the job")
    run_in_process(event, tmp_path, "echo", "from the image")
    assert api.finished[0]["output_text"] == "from the job\n"


def test_secret_variables_of_the_container_are_masked(api: ClaimsApi, tmp_path: Path) -> None:
    event = a_container_event(api, "sh", "-c", "echo $TOKEN; echo $TOKEN >&2; exit 1")
    event |= {"secret_variables": ["TOKEN"]}
    run_in_process(event, tmp_path, TOKEN="swordfish-7")
    [finish] = api.finished
    assert finish["output_text"] == "[secret]\n"
    assert finish["log"] == "[secret]\n[secret]\n"
    assert finish["error_message"] == "Exit code 1\n[secret]"


def test_output_beyond_that_of_scripts_is_uploaded_whole(api: ClaimsApi, tmp_path: Path) -> None:
    size = 20 * 1024 * 1024
    event = a_container_event(api, "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x")
    run_in_process(event, tmp_path)
    [finish] = api.finished
    data, headers = api.objects["/objects/output"]
    assert (len(data), headers["Content-Length"]) == (size, str(size))
    assert (finish["output_truncated"], finish["logs_truncated"]) == (False, True)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["no-such-program"], "The image has no program 'no-such-program'"),
        ([], "The image has no command, and the job names none"),
    ],
)
def test_missing_command_fails_without_a_retry(
    api: ClaimsApi, tmp_path: Path, command: list[str], text: str
) -> None:
    run_in_process(a_container_event(api, *command), tmp_path)
    [finish] = api.finished
    assert (finish["status"], finish["error_message"], finish["retryable"]) == (
        "FAILED",
        text,
        False,
    )


def test_cancel_stops_the_command(api: ClaimsApi, tmp_path: Path) -> None:
    event = a_container_event(api, "sh", "-c", "trap 'echo bye; exit 3' TERM; sleep 1000 & wait")
    with started_runner(event, tmp_path) as runner:
        api.wait_for(lambda: len(api.renewed) == 1)
        api.claim_status = "CANCEL"
        api.wait_for(lambda: bool(api.finished))
        runner.end()
    [finish] = api.finished
    assert (finish["status"], finish["output_text"]) == ("CANCELLED", "bye\n")


def test_end_that_the_api_does_not_take_is_no_success(api: ClaimsApi, tmp_path: Path) -> None:
    """ECS tells the exit code of the runner to a deployment that has no finish of the run."""
    api.finishes = [422, 422]
    with started_runner(a_container_event(api, "echo", "out"), tmp_path) as runner:
        ended = runner.end()
    assert (ended.exit_code, api.finished) == (UNREPORTED_EXIT_CODE, [])
    assert ended.errors == "The runner could not report how the run ended\n"


def test_output_of_a_full_disk_is_cut(tmp_path: Path) -> None:
    command = ContainerCommand(
        tmp_path, Children(), lambda: 0.0, ("echo", "out"), {"PATH": os.environ["PATH"]}
    )
    command.output_file = Path("/dev/full")
    outcome = command.run(an_attempt(""), StopSignal(), Log())
    assert (outcome.status, outcome.output_truncated) == ("SUCCESS", True)


def test_output_of_a_container_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_command, "MAX_CONTAINER_OUTPUT_BYTES", 3)
    variables = {"PATH": os.environ["PATH"]}
    command = ContainerCommand(tmp_path, Children(), lambda: 0.0, ("echo", "output"), variables)
    outcome = command.run(an_attempt(""), StopSignal(), Log())
    assert (outcome.output_truncated, outcome.output) == (True, b"")
    assert command.output_file.read_bytes() == b"out"


def test_stop_of_the_task_that_comes_before_the_answer_is_told_as_a_cancel(
    api: ClaimsApi, tmp_path: Path
) -> None:
    event = a_container_event(api, "sh", "-c", "sleep 1000")
    with started_runner(event, tmp_path) as runner:
        api.wait_for(lambda: len(api.renewed) == 1)
        api.renewals.append("CANCEL")  # for the call after the signal
        runner.terminate()
        api.wait_for(lambda: bool(api.finished))
        runner.end()
    [finish] = api.finished
    assert (finish["status"], finish["error_message"]) == ("CANCELLED", "Cancelled")
