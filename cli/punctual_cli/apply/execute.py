"""Carry out a plan. A step that fails does not stop the steps of other jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from punctual_cli.apply.plan import Change, Create, Plan, Prune

if TYPE_CHECKING:
    from punctual.client import Punctual, PunctualError


class StepResult(NamedTuple):
    """The outcome of one step of a plan."""

    action: str
    name: str
    job_id: str | None
    step: Create | Change | Prune
    error: "PunctualError | None" = None


def execute_plan(client: "Punctual", plan: Plan) -> Iterator[StepResult]:
    """Yield the outcome of each step. Changes and cancellations run before new jobs are created."""
    from punctual.client import Refused

    steps: list[Create | Change | Prune] = [*plan.changes, *plan.prunes, *plan.creates]
    for step in steps:
        action, name = _describe_step(step)
        try:
            job_id: str | None = _execute_step(client, step)
        except Refused as error:
            yield StepResult(action, name, None, step, error)
        else:
            yield StepResult(action, name, job_id, step)


def _describe_step(step: Create | Change | Prune) -> tuple[str, str]:
    if isinstance(step, Prune):
        return "cancel", str(step.present["name"])
    return ("create" if isinstance(step, Create) else "change"), step.declared.name


def _execute_step(client: "Punctual", step: Create | Change | Prune) -> str:
    if isinstance(step, Create):
        fields: dict[str, Any] = dict(step.declared.fields)
        job_id = client.jobs.create(idempotency_key=step.idempotency_key, **fields).job_id
        if step.declared.paused:
            client.jobs.pause(job_id)
        return job_id
    present = step.present
    job_id = str(present["job_id"])
    if isinstance(step, Prune):
        client.jobs.cancel(job_id, if_match=present["version"])
        return job_id
    version = present["version"]
    if step.changed_fields:
        changes: dict[str, Any] = dict(step.changed_fields)
        version = client.jobs.update(job_id, if_match=version, **changes).version
    if step.pause_action == "pause":
        client.jobs.pause(job_id, if_match=version)
    elif step.pause_action == "resume":
        client.jobs.resume(job_id, if_match=version)
    return job_id
