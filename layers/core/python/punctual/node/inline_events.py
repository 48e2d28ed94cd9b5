"""The `event` task on the node. The commit that claims and ends a run publishes its event."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from punctual.domain.decide import Verdict
from punctual.domain.errors import Unavailable
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.executor import Assignment, Executor, FinishedAttempt
from punctual.engine.ports.rows import Detail
from punctual.node.sqlite.feed import SqliteFeed
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.contract import BadTask, Outcome
from punctual.tasks.event import EventFields, build_event, published_outcome
from punctual.tasks.placeholders import FindSecret, expand
from punctual.tasks.script.open_files import NotBegun


class InlineRunner:
    """Runs `event` tasks on the node's own thread, because the work is one more row."""

    def __init__(
        self,
        executor: Executor,
        feed: SqliteFeed,
        secrets: FindSecret,
        new_id: Callable[[], str],
    ) -> None:
        self._executor = executor
        self._feed = feed
        self._secrets = secrets
        self._new_id = new_id

    def run(self, assignments: Sequence[Assignment]) -> list[tuple[FinishedAttempt, Run]]:
        """Publish the events and finish the runs, in the transaction that claimed them."""
        outcomes = [self._run_event(assignment) for assignment in assignments]
        results = self._executor.finish([finished for finished, _ in outcomes])
        ended_runs: list[tuple[FinishedAttempt, Run]] = []
        events: list[EventFields] = []
        for (finished, events_of_run), result in zip(outcomes, results, strict=True):
            if result.verdict is Verdict.OK and result.decision and result.decision.run:
                ended_runs.append((finished, result.decision.run))
                events += events_of_run
        self._feed.publish(events)
        return ended_runs

    def _run_event(self, assignment: Assignment) -> tuple[FinishedAttempt, list[EventFields]]:
        """Return the end of the run and its event.

        A wrong placeholder fails the run without a retry.
        """
        try:
            event = build_event(expand(attempt_of(assignment), self._secrets))
        except BadTask as error:
            return _failed_attempt(assignment, str(error), retryable=False), []
        except Unavailable as error:
            return _failed_attempt(assignment, error.message, retryable=True), []
        except NotBegun as error:
            return _failed_attempt(assignment, str(error), retryable=True), []
        event_id = self._new_id()
        outcome = published_outcome(event_id)
        detail = detail_of(assignment, outcome)
        if not detail.discarded:
            detail = replace(detail, output=outcome.output)
        finished = _finished_attempt(assignment, RunStatus.SUCCESS, detail, retryable=False)
        return finished, [{"id": event_id, **event}]


def _failed_attempt(assignment: Assignment, error: str, *, retryable: bool) -> FinishedAttempt:
    detail = detail_of(assignment, Outcome.failed(error))
    return _finished_attempt(assignment, RunStatus.FAILED, detail, retryable=retryable)


def _finished_attempt(
    assignment: Assignment, status: RunStatus, detail: Detail, *, retryable: bool
) -> FinishedAttempt:
    run = assignment.run
    return FinishedAttempt(assignment.key, run.run_id, run.token, status, retryable, detail)
