"""The containers of the rehearsal, which are processes of this machine."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rehearsal.emulator import PLAIN_IMAGE, RUNNER_IMAGE, SCRIPTS_IMAGE, entry_points
from tests.rehearsal.process_engine import (
    SIGNAL_EXIT_CODE,
    ImageNotFound,
    ProcessContainer,
    ProcessEngine,
    install,
)
from tests.support.infra.synthesis import stage_settings

TERMINATED = SIGNAL_EXIT_CODE + 15


@pytest.fixture
def engine() -> ProcessEngine:
    return ProcessEngine({"plain": [], "python": [sys.executable, "-I", "-S", "-c"]})


def run(engine: ProcessEngine, image: str, *command: str, **environment: str) -> ProcessContainer:
    return engine.run(image, command=list(command), environment=environment, detach=True)


def test_container_has_its_command_environment_log_and_exit_code(engine: ProcessEngine) -> None:
    container = run(engine, "plain", "sh", "-c", 'echo "$A"; echo err >&2; exit 4', A="b")
    assert b"".join(container.logs(stream=True)) == b"b\nerr\n"
    assert container.wait() == {"StatusCode": 4}
    assert (container.status, engine.get(container.id)) == ("exited", container)


def test_entry_point_stands_before_the_command(engine: ProcessEngine) -> None:
    container = run(engine, "python", "import sys; print(sys.argv[1:])", "one")
    assert b"".join(container.logs()) == b"['one']\n"


def test_container_that_is_asked_to_stop_ends_by_the_signal(engine: ProcessEngine) -> None:
    container = run(engine, "plain", "sleep", "600")
    assert container.status == "running"
    container.ask_to_stop()
    assert container.wait() == {"StatusCode": TERMINATED}


def test_unknown_image_is_not_found(engine: ProcessEngine) -> None:
    with pytest.raises(ImageNotFound, match="pull access denied for other"):
        run(engine, "other", "true")


def test_emulator_knows_the_image_of_long_scripts() -> None:
    images = entry_points()
    assert stage_settings("rehearsal")["scriptsImage"] == SCRIPTS_IMAGE
    assert images[SCRIPTS_IMAGE] == images[RUNNER_IMAGE] != images[PLAIN_IMAGE]
    assert images[RUNNER_IMAGE][-1].endswith("runner.zip")


class Emulator:
    """The parts of the emulator's ECS that are replaced."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.ecs: Any = SimpleNamespace(
            _ACTION_MAP={},
            _run_task=self._run_task,
            _stop_task=lambda request: {"stopped": request["task"]},
            _mark_task_running=lambda arn, task: True,
            _mark_task_stopped=self._mark_stopped,
            _sanitize=dict,
            _tasks={},
            json_response=dict,
        )
        events = SimpleNamespace(_put_events=lambda data, **_: self.sent.extend(data["Entries"]))
        self.iam: Any = SimpleNamespace(extract_resource_arn=lambda *_: "cluster-arn")
        self.evaluator: Any = SimpleNamespace(_resolve_condition_key=lambda key, _context: key)
        self.ssm: Any = SimpleNamespace(resolve_parameter_value=lambda name, decrypt: decrypt)
        install(self.ecs, events, self.ssm, self.iam, self.evaluator)

    def _run_task(self, request: dict[str, Any]) -> dict[str, Any]:
        self.started.append(request)
        return {"task": len(self.started)}

    def _mark_stopped(
        self, _arn: str, task: dict[str, Any], reason: str, code: str, exit_code: int | None = None
    ) -> bool:
        task.update(stoppedReason=reason, stopCode=code, exitCode=exit_code)
        return True


def test_client_token_starts_one_task() -> None:
    emulator = Emulator()
    run_task = emulator.ecs._ACTION_MAP["RunTask"]
    answers = [run_task({"clientToken": token}) for token in ("a", "a", "b")]
    assert answers == [{"task": 1}, {"task": 1}, {"task": 2}]


def test_stopped_task_ends_with_the_reason_of_its_stop() -> None:
    emulator = Emulator()
    engine = emulator.ecs._get_docker()
    engine._entry_points = {"plain": []}
    started = engine.run("plain", command=["sleep", "600"])
    task = {"lastStatus": "RUNNING", "_docker_ids": [started.id]}
    emulator.ecs._tasks["arn"] = task
    emulator.ecs._ACTION_MAP["StopTask"]({"task": "arn", "reason": "Punctual: CANCEL"})
    assert started.wait() == {"StatusCode": TERMINATED}
    emulator.ecs._mark_task_stopped("arn", task, "exited", "EssentialContainerExited", exit_code=1)
    assert (task["stoppedReason"], task["stopCode"]) == ("Punctual: CANCEL", "UserInitiated")
    (event,) = emulator.sent
    assert (event["Source"], event["DetailType"]) == ("aws.ecs", "ECS Task State Change")


def test_secrets_of_containers_are_decrypted() -> None:
    assert Emulator().ssm.resolve_parameter_value("name") is True


def test_rights_are_checked_on_what_aws_names() -> None:
    emulator = Emulator()

    def resource(service: str, body: bytes) -> str:
        return str(emulator.iam.extract_resource_arn(service, "POST", "/", {}, body))

    started = b'{"cluster": "arn:cluster", "taskDefinition": "arn:definition"}'
    assert resource("ecs", started) == "arn:definition"
    assert emulator.evaluator._resolve_condition_key("ecs:cluster", None) == "arn:cluster"
    assert resource("ecs", b'{"cluster": "c", "tasks": ["arn:task"]}') == "arn:task"
    assert resource("logs", b'{"logStreamName": "s"}') == "cluster-arn:log-stream:s"
    assert resource("s3", b"") == "cluster-arn"
    assert emulator.evaluator._resolve_condition_key("aws:other", None) == "aws:other"
