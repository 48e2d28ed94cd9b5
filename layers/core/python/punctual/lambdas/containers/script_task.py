"""The `script` task where a function is too small: the same runner, in a container of ECS.

Values of secrets stand neither in the call of ECS nor in the stored event. Each secret of the task
is replaced by a random mark. ECS hands the value to the container by reference, and the runner
puts it in place of the mark.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from punctual.domain.errors import Unavailable
from punctual.lambdas.containers.task import TaskPlan
from punctual.tasks.container.definition import SecretReference, TaskContent
from punctual.tasks.container.next_step import CONTAINER_LEASE
from punctual.tasks.container.request import RUN_URL_VARIABLE
from punctual.tasks.container.sizes import NoSuchSize, script_size
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Runner,
    StopRequest,
    Throttled,
)
from punctual.tasks.limits import script_memory_mb
from punctual.tasks.runner_event import SignClaim, runner_event
from punctual.tasks.script_function import (
    MAX_FUNCTION_SCRIPT_SECONDS,
    FindArtifact,
    needs_container,
)
from punctual.tasks.text import json_bytes

SECRET_VARIABLE_PREFIX = "PUNCTUAL_SECRET_"


class SecretMark(str):
    """A random text in place of a secret. `arn` names the secret for ECS."""

    arn: str

    def __new__(cls, random_text: str, arn: str) -> "SecretMark":
        mark = super().__new__(cls, f"[secret {random_text}]")
        mark.arn = arn
        return mark


class Starter(Protocol):
    def start(self, attempt: Attempt, stop: StopRequest, plan: TaskPlan) -> Outcome: ...


class ContainerScriptTask:
    """Starts scripts in containers of `image`, which has the runner as its entry point."""

    def __init__(
        self,
        starter: Starter,
        image: str,
        max_vcpu: float,
        *,
        sign: SignClaim,
        api_url: Callable[[], str],
        find_artifact: FindArtifact,
    ) -> None:
        self._starter = starter
        self._image = image
        self._max_vcpu = max_vcpu
        self._sign = sign
        self._api_url = api_url
        self._find_artifact = find_artifact

    def run(self, attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        memory_mb = script_memory_mb(attempt.task)
        try:
            size = script_size(memory_mb, self._max_vcpu)
        except NoSuchSize as error:
            raise BadTask(f"{error.field} {error}") from error
        arns = sorted({mark.arn for mark in _marks_of(attempt)})
        variables = {arn: f"{SECRET_VARIABLE_PREFIX}{place}" for place, arn in enumerate(arns)}
        secrets = tuple(SecretReference(variables[arn], arn) for arn in arns)
        # Without an init process: its environment would be open to the script.
        content = TaskContent(self._image, size, (), secrets, has_init=False)
        try:
            event = self._event(attempt, memory_mb, variables)
        except Unavailable as error:  # nothing of the job has begun
            raise Throttled(error.message) from error
        files = {RUN_URL_VARIABLE: event}
        return self._starter.start(attempt, stop, TaskPlan(content, (), {}, files, is_script=True))

    def _event(self, attempt: Attempt, memory_mb: int, variables: dict[str, str]) -> bytes:
        artifact_id = attempt.task.get("artifact_id")
        resources = {"memory_mb": memory_mb}
        event: dict[str, Any] = json.loads(
            runner_event(
                replace(attempt, task={**attempt.task, "resources": resources}),
                sign=self._sign,
                api_url=self._api_url(),
                lease_seconds_left=CONTAINER_LEASE.total_seconds(),
                lease=CONTAINER_LEASE,  # the runner must not shorten the lease that ECS holds
                artifact=self._find_artifact(attempt.tenant, artifact_id) if artifact_id else None,
            )
        )
        marks = {str(mark): variables[mark.arn] for mark in _marks_of(attempt)}
        return json_bytes({**event, "secrets": [], "secret_marks": marks})


class SizedScriptTask:
    """Runs a script in a function, or in a container if it is too long or too large for one.

    `in_container` is None where the stage has no image for scripts.
    """

    def __init__(
        self, in_function: Runner, in_container: Runner | None, function_memory_mb: int
    ) -> None:
        self._in_function = in_function
        self._in_container = in_container
        self._function_memory_mb = function_memory_mb

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        seconds = attempt.timeout.total_seconds()
        if self._in_container is not None and needs_container(
            attempt.task, seconds, self._function_memory_mb
        ):
            return self._in_container.run(attempt, stop, recorder)
        if seconds > MAX_FUNCTION_SCRIPT_SECONDS and attempt.is_detached:
            raise BadTask(
                f"Scripts of this installation run at most {MAX_FUNCTION_SCRIPT_SECONDS} s: "
                "longer ones need `containers` and `scriptsImage`"
            )
        return self._in_function.run(attempt, stop, recorder)


def _marks_of(attempt: Attempt) -> list[SecretMark]:
    return [secret for secret in attempt.secrets if isinstance(secret, SecretMark)]
