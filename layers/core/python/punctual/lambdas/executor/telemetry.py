"""Telemetry of an executor: a short log line for each ended run, and metrics."""

from datetime import timedelta

from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.execution.executor import Finished
from punctual.engine.ports.notifications import Notification
from punctual.lambdas.telemetry import Metric, Telemetry

_MILLISECOND = timedelta(milliseconds=1)
_FAILED = (RunStatus.FAILED, RunStatus.TIMED_OUT)
SHOWN = 300  # characters of an error in a log line; the history has all of it


def tell_started(tell: Telemetry, run: Run) -> None:
    tell.measure(Metric.STARTED)
    late = run.lateness
    if late is not None and run.started_at == run.attempt_at:
        tell.measure(Metric.LATENESS, late / _MILLISECOND)


def tell_written(tell: Telemetry, finished: Finished, result: Result) -> None:
    if result.decision is not None and result.verdict is Verdict.OK:
        tell_ended(tell, finished, result.decision.run)
    else:
        tell("run_taken_over", job_id=finished.key.job_id, run_id=finished.run_id)


def tell_ended(tell: Telemetry, finished: Finished, run: Run | None) -> None:
    """Log an ended run, and only count a retried one. Log lines cost by the byte."""
    if run is None:
        return
    if run.ended_at is None:
        tell.measure(Metric.RETRIED)
        return
    tell.measure(Metric.FINISHED)
    why = {}
    if run.status in _FAILED:
        tell.measure(Metric.FAILED)
        why["error"] = finished.detail.error.partition("\n")[0][:SHOWN]
    late = run.lateness
    tell(
        "run_ended",
        job_id=finished.key.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        tenant=finished.key.tenant,
        status=run.status.value,
        lateness=None if late is None else late // _MILLISECOND,
        **why,
    )


def tell_given_up(
    tell: Telemetry, notice: Notification, error: str, tries: int | None = None
) -> None:
    """Log and count an abandoned webhook.

    Most often its target is at fault, so it is not logged as an error.
    """
    tell.measure(Metric.WEBHOOKS_GIVEN_UP)
    tell(
        "webhook_given_up",
        job_id=notice.job_id,
        run_id=notice.run_id,
        tenant=notice.tenant,
        status=notice.status.value,
        tries=tries,
        error=error,
    )
