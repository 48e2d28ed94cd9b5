"""A query for a name lists the job of the name first, on one page only."""

from datetime import datetime

from punctual.engine.ports.lists.job_index import (
    JobFilters,
    JobIndexPage,
    JobQuery,
    JobSort,
    Position,
)
from punctual.engine.ports.lists.job_names import NameRow
from punctual.engine.queries.named_job_index import NamedJobIndex
from tests.support.builders import NOON
from tests.support.simulation.small_ports import MemoryJobNames

TENANT = "acme"


class LateIndex:
    """A list of the jobs 9 to 1, without the jobs in `missing`."""

    def __init__(self, *missing: str) -> None:
        self.job_ids = [str(n) for n in range(9, 0, -1) if str(n) not in missing]

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        job_ids = [job_id for job_id in self.job_ids if after is None or (job_id,) < after]
        positions = [(job_id,) for job_id in job_ids[:limit]]
        return JobIndexPage(positions, positions[-1] if len(job_ids) > limit else None)


def list_all(index: NamedJobIndex, query: JobQuery, limit: int) -> list[str]:
    job_ids: list[str] = []
    after: Position | None = None
    for _ in range(20):
        page = index.page(TENANT, query, limit, after, NOON)
        assert len(page.positions) <= limit
        job_ids += [position[-1] for position in page.positions]
        after = page.next_cursor
        if after is None:
            return job_ids
    raise AssertionError("the list does not end")


def an_index(*missing: str) -> NamedJobIndex:
    names = MemoryJobNames()
    names.put([NameRow(TENANT, "report", "4", "mark")])
    return NamedJobIndex(LateIndex(*missing), names)


BY_NAME = JobQuery(JobFilters(name="report"))


def test_job_of_the_name_is_first_and_listed_once() -> None:
    for limit in (2, 3, 5, 20):
        assert list_all(an_index(), BY_NAME, limit) == list("498765321")


def test_job_that_the_list_does_not_show_yet_is_found() -> None:
    for limit in (2, 3, 20):
        assert list_all(an_index("4"), BY_NAME, limit) == list("498765321")


def test_other_queries_keep_their_order() -> None:
    in_order = list("987654321")
    for query in (
        JobQuery(),
        JobQuery(JobFilters(name_prefix="report")),
        JobQuery(JobFilters(name="other")),
        JobQuery(JobFilters(name="report"), JobSort.NAME),
    ):
        assert list_all(an_index(), query, 4) == in_order
    assert list_all(an_index(), BY_NAME, 1) == in_order
