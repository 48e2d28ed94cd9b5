"""Convert an assignment to an attempt, and an outcome to the stored detail."""

from datetime import timedelta

from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.rows import Detail
from punctual.tasks.contract import Attempt, Outcome

DISCARDED_OUTPUT = "discard"  # the value of a job's `output` that stores neither output nor log


def attempt_of(assignment: Assignment) -> Attempt:
    run, definition = assignment.run, assignment.definition
    return Attempt(
        tenant=assignment.key.tenant,
        job_id=assignment.key.job_id,
        run_id=run.run_id,
        name=definition.name,
        attempt_number=run.attempt,
        scheduled_at=run.scheduled_at,
        task=definition.document.get("task") or {"type": "event"},
        payload=assignment.payload,
        timeout=timedelta(seconds=assignment.timeout_seconds),
        token=run.token,
        keeps_output=definition.document.get("output") != DISCARDED_OUTPUT,
    )


def detail_of(assignment: Assignment, outcome: Outcome) -> Detail:
    """Return the stored detail of an outcome, without its output and log.

    `discarded` is true if the job asks to store neither output nor log.
    """
    discarded = assignment.definition.document.get("output") == DISCARDED_OUTPUT
    is_stored = bool(outcome.output or outcome.output_upload) and not discarded
    return Detail(
        error=outcome.error,
        exit_code=outcome.exit_code,
        http_status=outcome.http_status,
        http_headers=outcome.http_headers,
        output_type=outcome.output_type if is_stored else "",
        output_truncated=outcome.output_truncated and is_stored,
        log_truncated=outcome.logs_truncated and not discarded,
        discarded=discarded,
    )
