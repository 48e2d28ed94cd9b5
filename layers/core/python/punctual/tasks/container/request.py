"""What one start of a container differs in: command, environment, and the checks of both."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from punctual.domain.task_limits import RESERVED_ENV_PREFIX
from punctual.tasks.container.definition import SecretReference
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


def check_overrides(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise `BadTask` if ECS would not take these overrides."""
    for argument in command:
        encode_text(argument, "An argument")
    size = command_bytes(command, environment)
    if size > MAX_OVERRIDE_CHARACTERS:
        raise BadTask(
            f"`command`, `env` and the variables of Punctual have {size:,} characters together; "
            f"ECS takes {MAX_OVERRIDE_CHARACTERS:,}"
        )


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
