"""The `event` task on the node: published in the commit that ends its run."""

from collections.abc import Sequence

from punctual.domain.run import Status
from punctual.engine.executor import Assignment, Finished
from punctual.engine.ports import Detail, Feed
from punctual.local.holding import attempt_of
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.event import build_event, published
from punctual.tasks.placeholders import expand, has_placeholders, no_secrets


def publish(granted: Sequence[Assignment], feed: Feed) -> list[Finished]:
    """How each ended: published, or failed for good where a placeholder names nothing."""
    ready: list[tuple[Assignment, Attempt]] = []
    finished: list[Finished] = []
    for assignment in granted:
        try:
            ready.append((assignment, _expanded(attempt_of(assignment))))
        except BadTask as error:
            detail = Detail(error=str(error))
            finished.append(_ended(assignment, Status.FAILED, detail))
    ids = feed.publish([build_event(attempt) for _, attempt in ready])
    for (assignment, _), event_id in zip(ready, ids, strict=True):
        outcome = published(event_id)
        detail = Detail(output=outcome.output, output_type=outcome.output_type)
        finished.append(_ended(assignment, Status.SUCCESS, detail))
    return finished


def _expanded(attempt: Attempt) -> Attempt:
    return expand(attempt, no_secrets) if has_placeholders(attempt.task) else attempt


def _ended(assignment: Assignment, status: Status, detail: Detail) -> Finished:
    run = assignment.run
    return Finished(assignment.key, run.run_id, run.token, status, False, detail)
