"""The log line and the metrics of a run that ended."""

from typing import Any

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.rows import Detail, JobKey
from punctual.lambdas.executor.telemetry import MAX_LOGGED_ERROR_CHARACTERS, log_ended
from punctual.lambdas.telemetry import Metric
from tests.support.builders import JOB, NOON, RUN, a_run


class RecordingTelemetry:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.metrics: list[Metric] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))

    def error(self, event: str, /, **fields: Any) -> None:
        raise AssertionError(f"{event} is no problem of ours")

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.metrics.append(metric)

    def invocation(self) -> Any:
        raise AssertionError("the batch opens and closes what is told")


def log_end_of_run(status: RunStatus, error: str) -> RecordingTelemetry:
    telemetry = RecordingTelemetry()
    finished = FinishedAttempt(JobKey("acme", JOB), RUN, 2, status, False, Detail(error=error))
    log_ended(telemetry, finished, a_run(status=status, started_at=NOON, ended_at=NOON))
    return telemetry


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.TIMED_OUT])
def test_failed_run_is_logged_with_a_bounded_error(status: RunStatus) -> None:
    telemetry = log_end_of_run(status, "no route to host " * 100)
    ((event, fields),) = telemetry.lines
    assert (event, fields["status"]) == ("run_ended", status.value)
    assert fields["error"] == ("no route to host " * 100)[:MAX_LOGGED_ERROR_CHARACTERS]
    assert telemetry.metrics == [Metric.FINISHED, Metric.FAILED]


def test_logged_error_is_its_first_line() -> None:
    """The other lines are output of the task, which may hold secrets."""
    ((_, fields),) = log_end_of_run(RunStatus.FAILED, "Exit code 3\npassword: hush").lines
    assert fields["error"] == "Exit code 3"


def test_successful_run_is_logged_without_an_error_field() -> None:
    telemetry = log_end_of_run(RunStatus.SUCCESS, "")
    ((_, fields),) = telemetry.lines
    assert "error" not in fields
    assert telemetry.metrics == [Metric.FINISHED]
