"""From an assignment to what a runner is given, and from its outcome to what is kept of it."""

from datetime import timedelta

from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.rows import Detail
from punctual.tasks.contract import Attempt, Outcome


def attempt_of(assignment: Assignment) -> Attempt:
    run, body = assignment.run, assignment.body
    return Attempt(
        tenant=assignment.key.tenant,
        job_id=assignment.key.job_id,
        run_id=run.run_id,
        name=body.name,
        attempt_number=run.attempt,
        scheduled_at=run.scheduled_at,
        task=body.document.get("task") or {"type": "event"},
        payload=assignment.payload,
        timeout=timedelta(seconds=assignment.timeout_seconds),
        token=run.token,
    )


def detail_of(outcome: Outcome) -> Detail:
    """What an outcome leaves behind, its output and log aside."""
    return Detail(
        error=outcome.error,
        exit_code=outcome.exit_code,
        http_status=outcome.http_status,
        http_headers=outcome.http_headers,
        output_type=outcome.output_type if outcome.output else "",
        output_truncated=outcome.output_truncated,
        log_truncated=outcome.logs_truncated,
    )
