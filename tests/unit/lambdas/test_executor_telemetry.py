"""What an executor tells of a run that ended: why it failed, and as little as that takes."""

from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.rows import Detail, JobKey
from punctual.lambdas.executor.telemetry import MAX_LOGGED_ERROR_CHARACTERS, log_ended
from punctual.lambdas.telemetry import Metric
from tests.support.builders import JOB, NOON, RUN, a_run


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.measured: list[Metric] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))

    def error(self, event: str, /, **fields: Any) -> None:
        raise AssertionError(f"{event} is no problem of ours")

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.measured.append(metric)

    def invocation(self) -> Any:
        raise AssertionError("the batch opens and closes what is told")


def ended(status: RunStatus, error: str) -> Told:
    told = Told()
    finished = FinishedAttempt(JobKey("acme", JOB), RUN, 2, status, False, Detail(error=error))
    log_ended(told, finished, a_run(status=status, started_at=NOON, ended_at=NOON))
    return told


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.TIMED_OUT])
def test_a_run_that_failed_tells_why_in_so_many_letters(status: RunStatus) -> None:
    told = ended(status, "no route to host " * 100)
    ((event, fields),) = told.lines
    assert (event, fields["status"]) == ("run_ended", status.value)
    assert fields["error"] == ("no route to host " * 100)[:MAX_LOGGED_ERROR_CHARACTERS]
    assert told.measured == [Metric.FINISHED, Metric.FAILED]


def test_only_the_first_line_of_an_error_is_told() -> None:
    """What follows is what the task printed, which may be anything."""
    ((_, fields),) = ended(RunStatus.FAILED, "Exit code 3\npassword: hush").lines
    assert fields["error"] == "Exit code 3"


def test_a_run_that_went_well_pays_for_no_such_field() -> None:
    told = ended(RunStatus.SUCCESS, "")
    ((_, fields),) = told.lines
    assert "error" not in fields
    assert told.measured == [Metric.FINISHED]
