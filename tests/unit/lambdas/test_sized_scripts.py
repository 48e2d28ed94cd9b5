"""Where a script runs on AWS: in a function, in a container, or nowhere."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from punctual.lambdas.containers.script_task import SizedScriptTask
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, StopRequest, StopSignal
from tests.support.scripts.script_runs import Log, an_attempt


class Place:
    """Records the attempts that run here."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def run(self, attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        self.attempts.append(attempt)
        return Outcome("DETACHED")


def a_script(seconds: int, **task: Any) -> Attempt:
    attempt = an_attempt("true")
    return replace(
        attempt,
        task={**attempt.task, **task},
        timeout=timedelta(seconds=seconds),
        is_detached=True,
    )


@pytest.mark.parametrize(
    ("seconds", "task", "is_in_container"),
    [
        (840, {}, False),
        (841, {}, True),
        (60, {"resources": {"memory_mb": 512}}, False),
        (60, {"resources": {"memory_mb": 513}}, True),
        (86_400, {"code": None, "artifact_id": "a"}, True),
    ],
)
def test_script_that_is_too_long_or_too_large_for_a_function_runs_in_a_container(
    seconds: int, task: dict[str, Any], is_in_container: bool
) -> None:
    function, container = Place(), Place()
    attempt = a_script(seconds, **task)
    SizedScriptTask(function, container, 512).run(attempt, StopSignal(), Log())
    used, unused = (container, function) if is_in_container else (function, container)
    assert (used.attempts, unused.attempts) == ([attempt], [])


def test_long_script_without_an_image_fails_and_says_why() -> None:
    function = Place()
    task = SizedScriptTask(function, None, 512)
    with pytest.raises(BadTask, match="run at most 840 s: longer ones need `containers`"):
        task.run(a_script(1_000), StopSignal(), Log())
    assert function.attempts == []
    task.run(a_script(840, resources={"memory_mb": 1_000}), StopSignal(), Log())
    assert len(function.attempts) == 1, "the stage had more memory when the job was accepted"
