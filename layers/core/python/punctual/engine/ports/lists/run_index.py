"""The port for the list of a tenant's runs over all jobs."""

from datetime import datetime
from typing import Protocol

from punctual.engine.queries.filters import RunFilters
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page


class RunIndex(Protocol):
    """The runs of all jobs, live and ended. It may lag behind the job states by seconds."""

    def page(
        self,
        tenant: str,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Sliced[Page]:
        """Return the runs after the cursor that match, newest first, each run once.

        The cursor begins with a run id. A page reads a bounded number of rows, so it may be short.
        It is the last page if it has no cursor. Runs fired early are left out.
        """
