"""Telemetry of an executor: a short log line for each ended run, and metrics."""

from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.domain.utc import MILLISECOND
from punctual.engine.changes.change import Result
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.notifications import Notification
from punctual.lambdas.telemetry import Metric, Telemetry

_FAILED_STATUSES = (RunStatus.FAILED, RunStatus.TIMED_OUT)
MAX_LOGGED_ERROR_CHARACTERS = 300  # characters of an error in a log line; the history has all of it


def log_started(log: Telemetry, run: Run) -> None:
    log.metric(Metric.STARTED)
    lateness = run.lateness
    if lateness is not None and run.started_at == run.attempt_at:
        log.metric(Metric.LATENESS, lateness / MILLISECOND)


def log_written(log: Telemetry, finished: FinishedAttempt, result: Result) -> None:
    if result.decision is not None and result.verdict is Verdict.OK:
        log_ended(log, finished, result.decision.run)
    else:
        log("run_taken_over", job_id=finished.key.job_id, run_id=finished.run_id)


def log_ended(log: Telemetry, finished: FinishedAttempt, run: Run | None) -> None:
    """Log an ended run, and only count a retried one. Log lines cost by the byte."""
    if run is None:
        return
    if run.ended_at is None:
        log.metric(Metric.RETRIED)
        return
    log.metric(Metric.FINISHED)
    error_fields = {}
    if run.status in _FAILED_STATUSES:
        log.metric(Metric.FAILED)
        error_fields["error"] = finished.detail.error.partition("\n")[0][
            :MAX_LOGGED_ERROR_CHARACTERS
        ]
    lateness = run.lateness
    log(
        "run_ended",
        job_id=finished.key.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        tenant=finished.key.tenant,
        status=run.status.value,
        lateness=None if lateness is None else lateness // MILLISECOND,
        **error_fields,
    )


def log_abandoned_webhook(
    log: Telemetry, notification: Notification, error: str, tries: int | None = None
) -> None:
    """Log and count an abandoned webhook.

    Most often its target is at fault, so it is not logged as an error.
    """
    log.metric(Metric.WEBHOOKS_GIVEN_UP)
    log(
        "webhook_given_up",
        job_id=notification.job_id,
        run_id=notification.run_id,
        tenant=notification.tenant,
        status=notification.status.value,
        tries=tries,
        error=error,
    )
