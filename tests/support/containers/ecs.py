"""A stand-in for ECS on Fargate and for the logs of its containers, on a manual clock.

It answers a boto3 client in place of AWS. Emulators run no tasks. A test moves each task from state
to state, and plants the faults that other projects have met. `events` holds what ECS would send.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from botocore.exceptions import ReadTimeoutError

ACCOUNT_ARN = "arn:aws:ecs:us-east-1:123456789012"
MAX_DESCRIBED = MAX_LISTED = 100
MAX_OVERRIDE_CHARACTERS = 8_192
OPERATIONS = (
    "RunTask",
    "DescribeTasks",
    "ListTasks",
    "StopTask",
    "RegisterTaskDefinition",
    "DeregisterTaskDefinition",
)


class Answer(NamedTuple):
    status_code: int


class Refusal(NamedTuple):
    """An error that ECS answers without an effect."""

    code: str
    message: str
    status: int = 400


class Failures(NamedTuple):
    """An answer of RunTask with status 200, failures and no task."""

    reason: str


class LostAnswer(NamedTuple):
    """ECS does what was asked, and the answer never arrives."""


Fault = Refusal | Failures | LostAnswer


@dataclass
class FakeTask:
    arn: str
    params: Mapping[str, Any]
    created_at: datetime
    status: str = "PROVISIONING"
    version: int = 1
    stop_code: str = ""
    stopped_reason: str = ""
    exit_code: int | None = None
    reason: str = ""
    has_containers: bool = True
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    stop_requests: list[str] = field(default_factory=list)

    @property
    def start_id(self) -> str:
        return str(self.params["startedBy"])

    @property
    def environment(self) -> dict[str, str]:
        (override,) = self.params["overrides"]["containerOverrides"]
        return {entry["name"]: entry["value"] for entry in override["environment"]}

    @property
    def command(self) -> list[str]:
        (override,) = self.params["overrides"]["containerOverrides"]
        return list(override.get("command", []))

    @property
    def environment_file(self) -> str:
        """Return the ARN of the file with more variables, or an empty string."""
        (override,) = self.params["overrides"]["containerOverrides"]
        files = override.get("environmentFiles", [])
        assert all(file["type"] == "s3" and file["value"].endswith(".env") for file in files)
        return "".join(file["value"] for file in files)

    @property
    def desired_status(self) -> str:
        return "STOPPED" if self.stop_requests or self.stop_code else "RUNNING"

    def shown(self) -> dict[str, Any]:
        """Return the task as DescribeTasks answers it."""
        container = {"name": "main", "lastStatus": self.status, "reason": self.reason}
        if self.exit_code is not None:
            container["exitCode"] = self.exit_code  # type: ignore[assignment]
        shown = {
            "taskArn": self.arn,
            "clusterArn": self.params["cluster"],
            "startedBy": self.start_id,
            "version": self.version,
            "lastStatus": self.status,
            "desiredStatus": self.desired_status,
            "containers": [container] if self.has_containers else [],
            "createdAt": self.created_at,
            "startedAt": self.started_at,
            "stoppedAt": self.stopped_at,
            "stopCode": self.stop_code,
            "stoppedReason": self.stopped_reason,
        }
        return {name: value for name, value in shown.items() if value not in ("", None)}

    def event(self) -> dict[str, Any]:
        """Return the state-change event that ECS sends for the present state."""
        detail = {
            name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
            for name, value in self.shown().items()
        }
        return {
            "source": "aws.ecs",
            "detail-type": "ECS Task State Change",
            "resources": [self.arn],
            "detail": detail,
        }


class Ecs:
    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._numbers = count(1)
        self.tasks: dict[str, FakeTask] = {}
        self.definitions: dict[str, Mapping[str, Any]] = {}  # active ones, by ARN
        self.logs: dict[str, list[str]] = {}  # lines by stream
        self.events: list[dict[str, Any]] = []
        self.faults: dict[str, list[Fault]] = {}  # by operation, each for one call
        self.calls: list[str] = []
        self._arn_by_token: dict[str, str] = {}

    def answer(self, client: Any) -> None:
        """Answer the calls of a client of ECS or of CloudWatch Logs from here on."""
        service = client.meta.service_model.service_name
        operations = OPERATIONS if service == "ecs" else ("GetLogEvents",)
        for operation in operations:
            events = client.meta.events
            events.register(f"before-parameter-build.{service}.{operation}", _keep_params)
            events.register_last(f"before-call.{service}.{operation}", self._called)

    def plant(self, operation: str, *faults: Fault) -> None:
        """Let the next calls of an operation fail, one fault each."""
        self.faults.setdefault(operation, []).extend(faults)

    def count(self, operation: str) -> int:
        return self.calls.count(operation)

    def _called(self, model: Any, context: Mapping[str, Any], **_: Any) -> Any:
        params, operation = context["stand_in_params"], model.name
        self.calls.append(operation)
        planted = self.faults.get(operation)
        fault = planted.pop(0) if planted else None
        if isinstance(fault, Refusal):
            return _refused(fault)
        if isinstance(fault, Failures):
            failures = [{"arn": params["cluster"], "reason": fault.reason}]
            return Answer(200), {"tasks": [], "failures": failures}
        answer = getattr(self, f"_{operation}")(params)
        if isinstance(fault, LostAnswer):
            raise ReadTimeoutError(endpoint_url="https://ecs.invalid")
        return _refused(answer) if isinstance(answer, Refusal) else (Answer(200), answer)

    # Operations

    def _RunTask(self, params: Mapping[str, Any]) -> Any:
        token = params["clientToken"]
        known = self._arn_by_token.get(token)
        if known is not None:  # the same token answers the same task, also a dead one
            return {"tasks": [self.tasks[known].shown()], "failures": []}
        if params["taskDefinition"] not in self.definitions:
            return Refusal("ClientException", "TaskDefinition is inactive")
        if len(json.dumps(params["overrides"], separators=(",", ":"))) > MAX_OVERRIDE_CHARACTERS:
            return Refusal("InvalidParameterException", "Overrides are too long")
        arn = (
            f"{ACCOUNT_ARN}:task/{params['cluster'].rsplit('/', 1)[-1]}/{next(self._numbers):032x}"
        )
        self.tasks[arn] = FakeTask(arn, dict(params), self._clock())
        self._arn_by_token[token] = arn
        self._tell(self.tasks[arn])
        return {"tasks": [self.tasks[arn].shown()], "failures": []}

    def _DescribeTasks(self, params: Mapping[str, Any]) -> Any:
        assert len(params["tasks"]) <= MAX_DESCRIBED, "DescribeTasks takes 100 tasks at most"
        known = [self.tasks[arn].shown() for arn in params["tasks"] if arn in self.tasks]
        missing = [arn for arn in params["tasks"] if arn not in self.tasks]
        return {"tasks": known, "failures": [{"arn": arn, "reason": "MISSING"} for arn in missing]}

    def _ListTasks(self, params: Mapping[str, Any]) -> Any:
        if "startedBy" in params and "desiredStatus" in params:
            return Refusal("InvalidParameterException", "startedBy must be the only filter.")
        arns = [
            task.arn
            for task in self.tasks.values()
            if task.start_id == params.get("startedBy", task.start_id)
            and task.desired_status == params.get("desiredStatus", "RUNNING")
        ]
        first = int(params.get("nextToken", 0))
        answer: dict[str, Any] = {"taskArns": arns[first : first + MAX_LISTED]}
        if len(arns) > first + MAX_LISTED:
            answer["nextToken"] = str(first + MAX_LISTED)
        return answer

    def _StopTask(self, params: Mapping[str, Any]) -> Any:
        task = self.tasks.get(params["task"])
        if task is None:
            return Refusal("InvalidParameterException", "The referenced task was not found.")
        task.stop_requests.append(params["reason"])
        return {"task": task.shown()}

    def _RegisterTaskDefinition(self, params: Mapping[str, Any]) -> Any:
        arn = f"{ACCOUNT_ARN}:task-definition/{params['family']}:{next(self._numbers)}"
        self.definitions[arn] = dict(params)
        return {"taskDefinition": {"taskDefinitionArn": arn}}

    def _DeregisterTaskDefinition(self, params: Mapping[str, Any]) -> Any:
        self.definitions.pop(params["taskDefinition"])
        return {"taskDefinition": {"taskDefinitionArn": params["taskDefinition"]}}

    def _GetLogEvents(self, params: Mapping[str, Any]) -> Any:
        lines = self.logs.get(params["logStreamName"])
        if lines is None:
            return Refusal("ResourceNotFoundException", "The specified log stream does not exist.")
        return {"events": [{"message": line} for line in lines[-params["limit"] :]]}

    # What happens to a task

    def only_task(self) -> FakeTask:
        """Return the only task that ECS has."""
        (task,) = self.tasks.values()
        return task

    def newest_task(self) -> FakeTask:
        return list(self.tasks.values())[-1]

    def pend(self, task: FakeTask) -> None:
        self._change(task, status="PENDING")

    def run(self, task: FakeTask) -> None:
        self._change(task, status="RUNNING", started_at=self._clock())

    def exit(self, task: FakeTask, code: int | None, reason: str = "") -> None:
        """End the container of a task. A code of None is an end that ECS cannot explain."""
        task.exit_code, task.reason = code, reason
        self.end(task, "EssentialContainerExited", "Essential container in task exited")

    def deprovision(self, task: FakeTask, code: int) -> None:
        """Take the network of a task after its container has ended. STOPPED follows."""
        task.exit_code = code
        self._change(task, status="DEPROVISIONING")

    def fail_start(self, task: FakeTask, words: str) -> None:
        """End a task that never started, with empty containers."""
        task.has_containers = False
        self.end(task, "TaskFailedToStart", words)

    def reclaim(self, task: FakeTask) -> None:
        self.end(task, "SpotInterruption", "Your Spot Task was interrupted.")

    def stop_requested(self, task: FakeTask, code: int | None = 143) -> None:
        """End a task that StopTask was called for."""
        task.exit_code = code
        self.end(task, "UserInitiated", task.stop_requests[0])

    def end(self, task: FakeTask, stop_code: str, words: str) -> None:
        self._change(
            task,
            status="STOPPED",
            stop_code=stop_code,
            stopped_reason=words,
            stopped_at=self._clock(),
        )

    def print(self, task: FakeTask, *lines: str) -> None:
        stream = f"run/main/{task.arn.rsplit('/', 1)[-1]}"
        self.logs.setdefault(stream, []).extend(lines)

    def _change(self, task: FakeTask, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(task, name, value)
        task.version += 1
        self._tell(task)

    def _tell(self, task: FakeTask) -> None:
        self.events.append(task.event())


def _keep_params(params: Mapping[str, Any], context: Any, **_: Any) -> None:
    context["stand_in_params"] = dict(params)


def _refused(refusal: Refusal) -> Any:
    error = {"Code": refusal.code, "Message": refusal.message}
    return Answer(refusal.status), {
        "Error": error,
        "ResponseMetadata": {"HTTPStatusCode": refusal.status},
    }
