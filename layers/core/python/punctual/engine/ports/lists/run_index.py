"""The port for the list of a tenant's runs over all jobs."""

from collections.abc import Generator
from datetime import datetime
from typing import Protocol

from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import Page


class RunIndex(Protocol):
    """The runs of all jobs, live and ended. It may lag behind the job states by seconds."""

    def page(
        self,
        tenant: str,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Generator[None, None, Page]:
        """Return the runs after the cursor that match, newest first, each run once.

        It yields after each step of a few milliseconds, so that other work proceeds in between.
        The cursor begins with a run id. A page reads a bounded number of rows, so it may be short.
        It is the last page if it has no cursor. Runs fired early are left out.
        """
