"""Carry out a plan. A step that fails does not stop the steps of other jobs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from punctual_cli.apply.plan import Change, Create, Plan, Prune

if TYPE_CHECKING:
    from punctual.client import Punctual, PunctualError


class Done(NamedTuple):
    """The outcome of one step of a plan."""

    action: str
    name: str
    job_id: str | None
    step: Create | Change | Prune
    error: "PunctualError | None" = None


def carry_out(client: "Punctual", plan: Plan) -> Iterator[Done]:
    """Yield the outcome of each step. Changes and cancellations run before new jobs are created."""
    from punctual.client import Refused

    steps: list[Create | Change | Prune] = [*plan.changes, *plan.prunes, *plan.creates]
    for step in steps:
        action, name = _said(step)
        try:
            job_id: str | None = _do(client, step)
        except Refused as error:
            yield Done(action, name, None, step, error)
        else:
            yield Done(action, name, job_id, step)


def _said(step: Create | Change | Prune) -> tuple[str, str]:
    if isinstance(step, Prune):
        return "cancel", str(step.present["name"])
    return ("create" if isinstance(step, Create) else "change"), step.declared.name


def _do(client: "Punctual", step: Create | Change | Prune) -> str:
    if isinstance(step, Create):
        fields: dict[str, Any] = dict(step.declared.fields)
        job_id = client.jobs.create(idempotency_key=step.key, **fields).job_id
        if step.declared.paused:
            client.jobs.pause(job_id)
        return job_id
    present = step.present
    job_id = str(present["job_id"])
    if isinstance(step, Prune):
        client.jobs.cancel(job_id, if_match=present["version"])
        return job_id
    version = present["version"]
    if step.sent:
        changes: dict[str, Any] = dict(step.sent)
        version = client.jobs.update(job_id, if_match=version, **changes).version
    if step.pause == "pause":
        client.jobs.pause(job_id, if_match=version)
    elif step.pause == "resume":
        client.jobs.resume(job_id, if_match=version)
    return job_id
