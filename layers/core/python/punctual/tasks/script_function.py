"""The `script` task on AWS: a function that holds no right runs the script.

A short script is waited for. A longer one goes to a detached runner, so that two functions never
wait for one script:

1. The executor extends the lease of the claim beyond the age at which Lambda drops the event.
2. It invokes the function asynchronously, and forgets the run.
3. The runner binds the claim to itself before user code starts, and finishes by the claim.

Until step 3 the run is CLAIMED. If the lease of a CLAIMED script expires, nothing has begun. The
run waits, is queued again, and no attempt is counted. Lambda drops events that it cannot start.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from punctual.domain.errors import Unavailable
from punctual.domain.leases import DETACHED_LEASE, RUN_LEASE
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    StopRequest,
    Throttled,
    stop_text,
)
from punctual.tasks.limits import DEFAULT_MEMORY_MB, SCRIPT_FUNCTIONS
from punctual.tasks.runner_event import (
    InvalidAnswer,
    RunnerArtifact,
    SignClaim,
    parse_answer,
    runner_event,
)

# The time that a runner has after a timeout or a cancel request to end the script and to answer.
RUNNER_ANSWER_SECONDS = 8.0
MAX_FUNCTION_SCRIPT_SECONDS = 840  # a function runs 15 minutes, and the runner needs the last one

FindArtifact = Callable[[str, str], RunnerArtifact]
"""Returns the file of a tenant by its id. Raises BadTask if it does not exist."""

_log = logging.getLogger(__name__)


class NoAnswer(Exception):
    """The function may run the script, but its answer is lost."""


class RunnerDied(Exception):
    """The environment of the function has ended without an answer."""


class ScriptFunctions(Protocol):
    """The deployed functions that run scripts.

    Both calls raise `Throttled` if nothing was started, and `NoAnswer` if that is not known.
    """

    def invoke(self, function: str, tenant: str, event: bytes, seconds: float, /) -> bytes:
        """Invoke the function once and return its answer after at most about `seconds`.

        Raise `RunnerDied` if the function failed.
        """

    def start(self, function: str, tenant: str, event: bytes, /) -> None:
        """Invoke the function once, and do not wait for it."""


def waits_for_script(timeout_seconds: float) -> bool:
    """Return whether an executor waits for a script with this timeout.

    >>> waits_for_script(25), waits_for_script(26)
    (True, False)
    """
    return timeout_seconds <= MAX_WAITED_SCRIPT_SECONDS


def needs_container(
    task: Mapping[str, Any], timeout_seconds: float, function_memory_mb: int
) -> bool:
    """Return whether a script takes too long, or too much memory, for a function of its stage.

    >>> needs_container({}, 840, 512), needs_container({}, 841, 512)
    (False, True)
    >>> needs_container({"resources": {"memory_mb": 513}}, 60, 512)
    True
    """
    own_mb: int | None = (task.get("resources") or {}).get("memory_mb")
    return timeout_seconds > MAX_FUNCTION_SCRIPT_SECONDS or (own_mb or 0) > function_memory_mb


class ScriptFunctionTask:
    """Runs `script` tasks. `memory_mb` is the most that a script of this stage may use.

    `sign` and `api_url` raise `Unavailable` while their parameters cannot be read.
    """

    def __init__(
        self,
        functions: ScriptFunctions,
        *,
        sign: SignClaim,
        api_url: Callable[[], str],
        memory_mb: int,
        find_artifact: FindArtifact,
    ) -> None:
        self._functions = functions
        self._sign = sign
        self._api_url = api_url
        self._memory_mb = memory_mb
        self._find_artifact = find_artifact

    def run(self, attempt: Attempt, _stop: StopRequest, recorder: Recorder, /) -> Outcome:
        function = SCRIPT_FUNCTIONS.get(attempt.task["runtime"])
        if function is None:
            raise BadTask(f"There is no runtime {attempt.task['runtime']!r}")
        try:
            event = self._event(attempt)
        except Unavailable as error:  # nothing of the job has begun
            raise Throttled(error.message) from error
        if attempt.is_detached:
            return self._start(function, attempt, event)
        return self._invoke(function, attempt, event, recorder)

    def _start(self, function: str, attempt: Attempt, event: bytes) -> Outcome:
        try:
            self._functions.start(function, attempt.tenant, event)
        except NoAnswer as error:  # the lease decides
            _log_lost(attempt, error)
        return Outcome("DETACHED")

    def _invoke(self, function: str, attempt: Attempt, event: bytes, recorder: Recorder) -> Outcome:
        seconds = attempt.timeout.total_seconds() + RUNNER_ANSWER_SECONDS
        try:
            outcome, log = parse_answer(
                self._functions.invoke(function, attempt.tenant, event, seconds)
            )
        except NoAnswer as error:  # the runner may go on, so the lease decides
            _log_lost(attempt, error)
            return Outcome("DETACHED")
        except (RunnerDied, InvalidAnswer) as error:
            _log_lost(attempt, error)
            return Outcome("LOST")
        if outcome.status == "CANCELLED" and not outcome.error.startswith(stop_text("CANCEL")):
            return Outcome("LOST")  # the runner stopped by itself, and no person asked for it
        recorder.log(log)
        return outcome

    def _event(self, attempt: Attempt) -> bytes:
        artifact_id = attempt.task.get("artifact_id")
        resources = {"memory_mb": memory_mb(attempt.task, self._memory_mb)}
        lease = DETACHED_LEASE if attempt.is_detached else RUN_LEASE
        return runner_event(
            replace(attempt, task={**attempt.task, "resources": resources}),
            sign=self._sign,
            api_url=self._api_url(),
            lease_seconds_left=lease.total_seconds(),
            artifact=self._find_artifact(attempt.tenant, artifact_id) if artifact_id else None,
        )


def memory_mb(task: Mapping[str, Any], most: int) -> int:
    """Return the memory of a script in MB. Without its own size it has the default of the node.

    >>> memory_mb({}, 256), memory_mb({"resources": {"memory_mb": 64}}, 256)
    (256, 64)
    """
    own: int | None = (task.get("resources") or {}).get("memory_mb")
    return min(DEFAULT_MEMORY_MB if own is None else own, most)


def _log_lost(attempt: Attempt, error: Exception) -> None:
    _log.error(
        "script_function_lost",
        extra={
            "job_id": attempt.job_id,
            "run_id": attempt.run_id,
            "attempt": attempt.attempt_number,
            "error": f"{type(error).__name__}: {error}",
        },
    )
