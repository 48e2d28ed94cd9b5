"""The types of a task's fields by task type, and the checks of what they mean together."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.domain.task_limits import (
    CONTROL_IN_HEADER,
    HEADER_NAME,
    LONG_TASK_TYPES,
    MAX_REDIRECTS,
    MAX_TASK_HEADER_BYTES,
    MAX_TASK_HEADERS,
    MAX_URL_CHARACTERS,
    RESERVED_ENV_PREFIX,
)
from punctual.web.features import NOT_INSTALLED, Features
from punctual.web.http.json_body import MAX_REPORTED_PATHS
from punctual.web.models.schedule import AddError, StrictModel

MAX_CODE_BYTES = 64 * 1024
MAX_LONG_TIMEOUT_SECONDS = 86_400
MAX_SHORT_TIMEOUT_SECONDS = 900

_SECRET_PLACEHOLDER = re.compile(r"\{\{\s*secret:")
MAX_PATH_CHARACTERS = 4096

_FIELDS_WITHOUT_PLACEHOLDERS = (
    *("type", "runtime", "code", "artifact_id"),
    *("interpreter", "working_directory"),
)

# Where a task type runs that this installation does not offer.
_TASK_TYPE_HINTS = {"container": "offered only on AWS, in a stage that has `containers` on"}

TargetName = Annotated[str, Field(min_length=1, max_length=2_048)]
NodePath = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS)]


class Resources(StrictModel):
    cpu: Annotated[float, Field(gt=0, le=16)] | None = None
    memory_mb: Annotated[int, Field(ge=64, le=122_880)] | None = None


class EventTask(StrictModel):
    type: Literal["event"]
    detail_type: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class HttpTask(StrictModel):
    type: Literal["http"]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_TASK_HEADERS)] | None = None
    body: Any = None
    expect_status: Any = None
    follow_redirects: Annotated[int, Field(ge=0, le=MAX_REDIRECTS)] | None = None


class LambdaTask(StrictModel):
    type: Literal["lambda"]
    function: TargetName


class SqsTask(StrictModel):
    type: Literal["sqs"]
    queue_url: TargetName


class ScriptTask(StrictModel):
    type: Literal["script"]
    runtime: Literal["python", "node", "bash", "binary"]
    code: str | None = None
    artifact_id: TargetName | None = None
    interpreter: NodePath | None = None
    working_directory: NodePath | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    resources: Resources | None = None


class ContainerTask(StrictModel):
    type: Literal["container"]
    image: TargetName
    command: list[str] | None = None
    env: dict[str, str] | None = None
    resources: Resources | None = None


Task = Annotated[
    EventTask | HttpTask | LambdaTask | SqsTask | ScriptTask | ContainerTask,
    Field(discriminator="type"),
]


def check_task(
    task: Mapping[str, Any], wrong_names: frozenset[str], features: Features, add_error: AddError
) -> None:
    """Check what a task means. `wrong_names` names the fields that have a wrong type."""
    task_type = task.get("type")
    if task_type is None:
        return
    if task_type not in features.task_types:
        hint = _TASK_TYPE_HINTS.get(task_type, NOT_INSTALLED)
        add_error("task.type", f"{task_type} tasks are {hint}")
        return
    refusal = features.refusal(task_type)
    if refusal:
        add_error("task.type", refusal)
    for name, value in task.items():
        if name not in _FIELDS_WITHOUT_PLACEHOLDERS and not features.secrets:
            for path in islice(_secret_paths(f"task.{name}", value), MAX_REPORTED_PATHS):
                add_error(path, f"secrets are {NOT_INSTALLED}")
    if task_type == "http":
        _check_headers(task.get("headers") or {}, add_error)
    elif task_type == "script":
        _check_script(task, wrong_names, features, add_error)
    _check_env(task.get("env") or {}, add_error)
    for field, message in islice(features.task_errors(task), MAX_REPORTED_PATHS):
        if f"task.{field}" not in wrong_names:
            add_error(f"task.{field}", message)


def check_timeout(
    seconds: int, task_type: str | None, features: Features, add_error: AddError
) -> None:
    """Check the timeout for a task type. None is an unknown type and allows the larger bound."""
    if (
        task_type is not None
        and task_type not in LONG_TASK_TYPES
        and seconds > MAX_SHORT_TIMEOUT_SECONDS
    ):
        longer = " and ".join(LONG_TASK_TYPES)
        add_error(
            "timeout_seconds",
            f"must be at most {MAX_SHORT_TIMEOUT_SECONDS} for {task_type} tasks "
            f"({MAX_LONG_TIMEOUT_SECONDS:,} for {longer})",
        )
    elif (
        task_type == "script"
        and features.max_script_seconds is not None
        and seconds > features.max_script_seconds
    ):
        add_error(
            "timeout_seconds",
            f"must be at most {features.max_script_seconds} for script tasks of this installation; "
            f"got {seconds}{features.script_limit_hint}",
        )


def _secret_paths(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _SECRET_PLACEHOLDER.search(value):
            yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _secret_paths(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _secret_paths(f"{path}.{index}", inner)


def _check_headers(headers: Mapping[str, str], add_error: AddError) -> None:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            add_error(f"task.headers.{name}", "is not a valid header name")
        elif CONTROL_IN_HEADER.search(value):
            add_error(
                f"task.headers.{name}", "must not hold line breaks or other control characters"
            )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    if size > MAX_TASK_HEADER_BYTES:
        add_error(
            "task.headers",
            f"must have at most {MAX_TASK_HEADER_BYTES:,} bytes in all names and values",
        )


def _check_script(
    task: Mapping[str, Any], wrong_names: frozenset[str], features: Features, add_error: AddError
) -> None:
    memory_mb = (task.get("resources") or {}).get("memory_mb")
    most_mb = features.max_script_memory_mb
    if isinstance(memory_mb, int) and most_mb is not None and memory_mb > most_mb:
        add_error(
            "task.resources.memory_mb",
            f"must be at most {most_mb} for scripts of this installation; got {memory_mb}"
            f"{features.script_limit_hint}",
        )
    code, artifact = task.get("code"), task.get("artifact_id")
    is_binary = task.get("runtime") == "binary"
    if not features.artifacts:
        if is_binary and task.get("interpreter") is None:
            add_error(
                "task.runtime", f"binary needs an artifact, and artifacts are {NOT_INSTALLED}"
            )
        if artifact is not None:
            add_error("task.artifact_id", f"artifacts are {NOT_INSTALLED}")
    names_program = task.get("interpreter") is not None
    if not features.node_paths:
        for name in ("interpreter", "working_directory"):
            if task.get(name) is not None:
                add_error(f"task.{name}", "is offered by a node only: leave it out")
    if is_binary:
        if code is not None:
            add_error("task.code", "must not be sent for binary: send artifact_id")
        elif (
            artifact is None
            and features.artifacts
            and not names_program
            and "task.artifact_id" not in wrong_names
        ):
            add_error("task.artifact_id", "is required when runtime is binary")
    elif code is None and artifact is None and not names_program:
        if not wrong_names & {"task.code", "task.artifact_id", "task.interpreter"}:
            add_error("task.code", "is required, unless artifact_id is sent")
    elif code is not None and artifact is not None:
        add_error("task.artifact_id", "must not be sent together with code: send one of them")
    if code is not None and len(code.encode()) > MAX_CODE_BYTES:
        add_error("task.code", f"must not be longer than {MAX_CODE_BYTES} bytes")


def _check_env(env: Mapping[str, str], add_error: AddError) -> None:
    for name in env:
        if not name or "=" in name:
            add_error(f"task.env.{name}", "is not a valid variable name")
        elif name.startswith(RESERVED_ENV_PREFIX):
            add_error(
                f"task.env.{name}",
                f"must not begin with {RESERVED_ENV_PREFIX}: Punctual sets these variables",
            )
