"""The port of open failures: one entry for each job and kind of error."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.domain.failures import Acknowledgement, Failure
from punctual.engine.ports.rows import JobKey

MAX_COUNTED_FAILURES = 10_000


class FailurePage(NamedTuple):
    """Failures, the last that happened first. `next_cursor` is None on the last page."""

    failures: Sequence[Failure]
    next_cursor: tuple[str, ...] | None


class FailureCounts(NamedTuple):
    """The open failures of a tenant, of a bounded number of rows."""

    acknowledged: int = 0
    unacknowledged: int = 0
    acknowledged_since: datetime | None = None  # the first failed run of these
    unacknowledged_since: datetime | None = None
    has_more: bool = False  # not all were read


class Failures(Protocol):
    """Open failures. The store writes them from the ends of runs, by `domain/failures.py`."""

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> FailurePage:
        """Return a page of the tenant's open failures."""

    def of_job(self, key: JobKey) -> Sequence[Failure]:
        """Return the open failures of one job, in any order."""

    def find(self, tenant: str, failure_id: str) -> Failure | None:
        """Return an open failure, or None."""

    def acknowledge(
        self, tenant: str, failure_id: str, acknowledgement: Acknowledgement
    ) -> Failure | None:
        """Acknowledge an open failure and return it, or None without one."""

    def counts(self, tenant: str) -> FailureCounts:
        """Return how many failures of the tenant are open."""
