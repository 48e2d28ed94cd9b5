"""A list of jobs in which a name finds its recurring job at once.

List rows may be written seconds after the job. The row of the name is written before it.
"""

from datetime import datetime

from punctual.engine.ports.lists.job_index import (
    JobIndex,
    JobIndexPage,
    JobQuery,
    JobSort,
    Position,
)
from punctual.engine.ports.lists.job_names import NameKey, NameRows


class NamedJobIndex:
    """Lists the job that has the name first, if the query is for one name.

    The job leaves its place in the order, so it is still on one page only.
    """

    def __init__(self, index: JobIndex, name_rows: NameRows) -> None:
        self.index = index
        self._name_rows = name_rows

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        job_id = self._find_job_id(tenant, query) if limit > 1 else None
        if job_id is None:
            return self.index.page(tenant, query, limit, after, now)
        first = [] if after is not None else [(job_id,)]
        page = self.index.page(tenant, query, limit - len(first), after, now)
        others = [position for position in page.positions if position[-1] != job_id]
        return JobIndexPage([*first, *others], page.next_cursor)

    def _find_job_id(self, tenant: str, query: JobQuery) -> str | None:
        name = query.filters.name
        if not name or query.sort is not JobSort.CREATED:
            return None
        key = NameKey(tenant, name)
        row = self._name_rows.find([key]).get(key)
        return None if row is None else row.job_id
