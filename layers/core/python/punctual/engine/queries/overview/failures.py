"""Reads the open failures of a tenant, with the names of their jobs."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.domain.errors import NotFound
from punctual.domain.failures import Failure
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.failures import FailureCounts, Failures
from punctual.engine.ports.rows import JobKey, Page
from punctual.engine.queries.cursor import time_in_cursor
from punctual.engine.queries.runs.job_labels import JobLabels


class FailureView(NamedTuple):
    failure: Failure
    job_name: str | None  # None if the job cannot be read


class FailureQueries:
    def __init__(self, failures: Failures, job_states: JobStates) -> None:
        self._failures = failures
        self._labels = JobLabels(job_states)

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> Page:
        """Return a page of views, the failure that happened last first."""
        page = self._failures.page(tenant, limit, after)
        return Page(self.views(tenant, page.failures), page.next_cursor)

    def page_of_job(self, key: JobKey, limit: int, after: tuple[str, ...] | None) -> Page:
        """Return a page of the views of one job. Other jobs are not read."""
        bound = None if after is None else (time_in_cursor(after[0]), after[1])
        remaining = sorted(
            (
                failure
                for failure in self._failures.of_job(key)
                if bound is None or _order(failure) < bound
            ),
            key=_order,
            reverse=True,
        )
        shown = remaining[:limit]
        cursor = None
        if len(remaining) > limit:
            cursor = (shown[-1].last_at.isoformat(), shown[-1].kind)
        return Page(self.views(key.tenant, shown), cursor)

    def views(self, tenant: str, failures: Sequence[Failure]) -> list[FailureView]:
        keys = sorted({JobKey(tenant, failure.job_id) for failure in failures})
        labels = self._labels.load(keys) if keys else {}
        names = {key.job_id: label.name for key, label in labels.items()}
        return [FailureView(failure, names.get(failure.job_id)) for failure in failures]

    def find(self, tenant: str, failure_id: str) -> Failure:
        failure = self._failures.find(tenant, failure_id)
        if failure is None:
            raise no_such_failure()
        return failure

    def counts(self, tenant: str) -> FailureCounts:
        return self._failures.counts(tenant)


def _order(failure: Failure) -> tuple[datetime, str]:
    return failure.last_at, failure.kind


def no_such_failure() -> NotFound:
    return NotFound("There is no such failure: it may be closed, because a later run succeeded.")
