"""What one start of a container differs in: command, environment, and the checks of both."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from punctual.domain.task_limits import RESERVED_ENV_PREFIX
from punctual.tasks.container.definition import SecretReference
from punctual.tasks.container.task_report import CONTAINER_NAME
from punctual.tasks.contract import BadTask
from punctual.tasks.text import as_text, encode_text

MAX_COMMAND_BYTES = 6 * 1024  # of `command` and `env` together, as ECS counts them
MAX_OVERRIDE_CHARACTERS = 8_192  # of ECS, for all that a start overrides
PAYLOAD_URL_VARIABLE = "PUNCTUAL_PAYLOAD_URL"
RUN_URL_VARIABLE = "PUNCTUAL_RUN_URL"


class SecretText(str):
    """The reference that stands for a secret in a container's task. It is not the secret."""

    __slots__ = ()


def command_bytes(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return the size of command and environment in a call of ECS.

    >>> command_bytes(["echo", "hi"], {"A": "1"})
    39
    """
    entries = [{"name": name, "value": value} for name, value in environment.items()]
    return sum(
        len(json.dumps(part, separators=(",", ":")).encode()) for part in (list(command), entries)
    )


def split_environment(
    env: Mapping[str, Any],
) -> tuple[dict[str, str], tuple[SecretReference, ...]]:
    """Return the plain variables, and those that ECS fills in from secrets."""
    plain: dict[str, str] = {}
    secrets: list[SecretReference] = []
    for name, value in env.items():
        if not name or "=" in name or name.startswith(RESERVED_ENV_PREFIX):
            raise BadTask(f"{name!r} may not be the name of a variable")
        if isinstance(value, SecretText):
            secrets.append(SecretReference(name, str(value)))
            continue
        text = as_text(value)
        encode_text(text, f"The variable {name!r}")
        plain[name] = text
    return plain, tuple(secrets)


def overrides_of(
    command: Sequence[str], environment: Mapping[str, str], environment_file: str = ""
) -> dict[str, Any]:
    """Return what a start overrides in its definition. `environment_file` is the ARN of one."""
    override: dict[str, Any] = {
        "name": CONTAINER_NAME,
        "environment": [{"name": name, "value": value} for name, value in environment.items()],
    }
    if command:
        override["command"] = list(command)
    if environment_file:
        override["environmentFiles"] = [{"value": environment_file, "type": "s3"}]
    return {"containerOverrides": [override]}


def fits(overrides: Mapping[str, Any]) -> bool:
    """Return whether ECS takes overrides of this size."""
    return _override_characters(overrides) <= MAX_OVERRIDE_CHARACTERS


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise `BadTask` if ECS would not take these overrides."""
    for argument in overrides["containerOverrides"][0].get("command", ()):
        encode_text(argument, "An argument")
    if not fits(overrides):
        raise BadTask(
            "`command`, `env` and the variables of Punctual have "
            f"{_override_characters(overrides):,} characters together; "
            f"ECS takes {MAX_OVERRIDE_CHARACTERS:,}"
        )


def _override_characters(overrides: Mapping[str, Any]) -> int:
    return len(json.dumps(overrides, separators=(",", ":")))


def size_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problem of a command and environment that are too large together."""
    command, env = task.get("command") or [], task.get("env") or {}
    if not isinstance(command, list) or not isinstance(env, Mapping):
        return
    size = command_bytes([str(word) for word in command], {str(k): str(v) for k, v in env.items()})
    if size > MAX_COMMAND_BYTES:
        field = "env" if env else "command"
        yield (
            field,
            f"`command` and `env` may have {MAX_COMMAND_BYTES:,} bytes together; got {size:,}",
        )
