"""The checks of a `container` task before a job is accepted."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from punctual.tasks.container.request import size_problems
from punctual.tasks.container.sizes import NoSuchSize, choose_size, script_size
from punctual.tasks.placeholders import has_placeholders

_IMAGE = re.compile(
    r"([a-z0-9]+([._-][a-z0-9]+)*(:\d{1,5})?/)?"  # registry
    r"[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_SECRET = re.compile(r"\{\{\s*secret:[^{}]*\}\}")
_PLACES_OF_SECRETS = "a secret may only be the whole value of a variable in env"


def container_problems(task: Mapping[str, Any], max_vcpu: float) -> Iterator[tuple[str, str]]:
    """Yield each invalid field of a container task and its problem.

    `max_vcpu` are the processors of all containers of the stage, so a larger task never fits.
    """
    image = task.get("image")
    if isinstance(image, str):
        if has_placeholders(image):
            yield "image", "must not hold placeholders"
        elif _IMAGE.fullmatch(image) is None:
            yield "image", "must be the name of an image, registry/name:tag or name@sha256:…"
    yield from _size_problems(task.get("resources"), max_vcpu)
    yield from size_problems(task)
    yield from _secret_problems(task)


def script_problems(task: Mapping[str, Any], max_vcpu: float) -> Iterator[tuple[str, str]]:
    """Yield the problem of a script that no container of the stage has the memory for."""
    memory_mb = (task.get("resources") or {}).get("memory_mb")
    if not isinstance(memory_mb, int):
        return
    try:
        script_size(memory_mb, max_vcpu)
    except NoSuchSize as error:
        yield error.field, str(error)


def _size_problems(resources: Any, max_vcpu: float) -> Iterator[tuple[str, str]]:
    wanted = {} if resources is None else resources
    if not isinstance(wanted, Mapping) or not all(
        value is None or isinstance(value, int | float) for value in wanted.values()
    ):
        return  # a field of a wrong type has its own message
    try:
        size = choose_size(wanted)
    except NoSuchSize as error:
        yield error.field, str(error)
        return
    if size.vcpu > max_vcpu:
        yield (
            "resources.cpu",
            f"must be at most {max_vcpu:g} in this installation (maxContainerVcpu); "
            f"got {size.vcpu:g}",
        )


def _secret_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the secrets that ECS cannot pass by reference."""
    command = task.get("command")
    for index, word in enumerate(command if isinstance(command, list) else ()):
        if isinstance(word, str) and _SECRET.search(word):
            yield f"command.{index}", _PLACES_OF_SECRETS
    env = task.get("env")
    for name, value in (env if isinstance(env, Mapping) else {}).items():
        is_partial = isinstance(value, str) and _SECRET.search(value)
        if is_partial and not _SECRET.fullmatch(value):
            yield f"env.{name}", _PLACES_OF_SECRETS
