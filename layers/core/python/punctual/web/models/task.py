"""What a job runs: the types of task, their fields, and what these mean together."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.web.features import NOT_HERE, Features
from punctual.web.http.json_body import MAX_FOUND
from punctual.web.models.schedule import Add, Strict

MAX_URL = 8_192
MAX_HEADERS = 50
MAX_HEADER_BYTES = 8 * 1024
MAX_CODE_BYTES = 64 * 1024
MAX_REDIRECTS = 5
LONG_TIMEOUT = 86_400
SHORT_TIMEOUT = 900
LONG_TASKS = ("script", "container")
OURS = "PUNCTUAL_"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECRET = re.compile(r"\{\{\s*secret:")
_VERBATIM = ("type", "runtime", "code", "artifact_id")

Text = Annotated[str, Field(min_length=1, max_length=2_048)]


class Resources(Strict):
    cpu: Annotated[float, Field(gt=0, le=16)] | None = None
    memory_mb: Annotated[int, Field(ge=64, le=122_880)] | None = None


class EventTask(Strict):
    type: Literal["event"]
    detail_type: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class HttpTask(Strict):
    type: Literal["http"]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    headers: Annotated[dict[str, str], Field(max_length=MAX_HEADERS)] | None = None
    body: Any = None
    expect_status: Any = None
    follow_redirects: Annotated[int, Field(ge=0, le=MAX_REDIRECTS)] | None = None


class LambdaTask(Strict):
    type: Literal["lambda"]
    function: Text


class SqsTask(Strict):
    type: Literal["sqs"]
    queue_url: Text


class ScriptTask(Strict):
    type: Literal["script"]
    runtime: Literal["python", "node", "bash", "binary"]
    code: str | None = None
    artifact_id: Text | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    resources: Resources | None = None


class ContainerTask(Strict):
    type: Literal["container"]
    image: Text
    command: list[str] | None = None
    env: dict[str, str] | None = None
    resources: Resources | None = None


Task = Annotated[
    EventTask | HttpTask | LambdaTask | SqsTask | ScriptTask | ContainerTask,
    Field(discriminator="type"),
]


def check_task(
    task: Mapping[str, Any], wrong: frozenset[str], features: Features, add: Add
) -> None:
    """The meaning of a task; `wrong` as in schedules."""
    kind = task.get("type")
    if kind is None:
        return
    if kind not in features.task_types:
        add("task.type", f"{kind} tasks are {NOT_HERE}")
        return
    if kind in features.refused:
        add("task.type", features.refused[kind])
    for name, value in task.items():
        if name not in _VERBATIM and not features.secrets:
            for path in islice(_secret_paths(f"task.{name}", value), MAX_FOUND):
                add(path, f"secrets are {NOT_HERE}")
    if kind == "http":
        _check_headers(task.get("headers") or {}, add)
    elif kind == "script":
        _check_script(task, wrong, features, add)
    _check_env(task.get("env") or {}, add)
    for field, problem in islice(features.check_task(task), MAX_FOUND):
        if f"task.{field}" not in wrong:
            add(f"task.{field}", problem)


def check_timeout(seconds: int, kind: str | None, add: Add) -> None:
    """Of a type that is not known nothing is said but the larger bound."""
    if kind is not None and kind not in LONG_TASKS and seconds > SHORT_TIMEOUT:
        longer = " and ".join(LONG_TASKS)
        add(
            "timeout_seconds",
            f"must be at most {SHORT_TIMEOUT} for {kind} tasks ({LONG_TIMEOUT:,} for {longer})",
        )


def _secret_paths(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _SECRET.search(value):
            yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _secret_paths(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _secret_paths(f"{path}.{index}", inner)


def _check_headers(headers: Mapping[str, str], add: Add) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            add(f"task.headers.{name}", "is not a name that a header may have")
        elif _CONTROL.search(value):
            add(f"task.headers.{name}", "must not hold line breaks or other control characters")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    if size > MAX_HEADER_BYTES:
        add("task.headers", f"must not be longer than {MAX_HEADER_BYTES} bytes together")


def _check_script(
    task: Mapping[str, Any], wrong: frozenset[str], features: Features, add: Add
) -> None:
    code, artifact = task.get("code"), task.get("artifact_id")
    binary = task.get("runtime") == "binary"
    if not features.artifacts:
        if binary:
            add("task.runtime", f"binary needs an artifact, and artifacts are {NOT_HERE}")
        if artifact is not None:
            add("task.artifact_id", f"artifacts are {NOT_HERE}")
    if binary:
        if code is not None:
            add("task.code", "is for python, node and bash; binary takes artifact_id")
        elif artifact is None and features.artifacts and "task.artifact_id" not in wrong:
            add("task.artifact_id", "is required when runtime is binary")
    elif code is None and artifact is None:
        if not wrong & {"task.code", "task.artifact_id"}:
            add("task.code", "is required, or artifact_id instead")
    elif code is not None and artifact is not None:
        add("task.artifact_id", "must not stand beside code: send one of them")
    if code is not None and len(code.encode()) > MAX_CODE_BYTES:
        add("task.code", f"must not be longer than {MAX_CODE_BYTES} bytes")


def _check_env(env: Mapping[str, str], add: Add) -> None:
    for name in env:
        if not name or "=" in name:
            add(f"task.env.{name}", "is not a name that a variable may have")
        elif name.startswith(OURS):
            add(f"task.env.{name}", f"names that begin with {OURS} are Punctual's to set")
