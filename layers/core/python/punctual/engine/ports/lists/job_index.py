"""The port for lists of jobs: which jobs pass the filters, and in which order."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, cast

from punctual.domain.job_state import JobState
from punctual.domain.run import waits_too_long
from punctual.engine.ports.rows import DefinitionRow

MAX_JOB_NAME_CHARACTERS = 256  # of a job

Position = tuple[str, ...]
"""The place of a job in a list, and the cursor of a page. Its last part is the job id."""


class JobSort(StrEnum):
    CREATED = "created"  # newest first
    NAME = "name"  # by the code points of the name
    NEXT_RUN = "next_run"  # soonest first, then the jobs without a next time, newest first


class JobHealth(StrEnum):
    FAILING = "FAILING"  # the job has an open failure
    LATE = "LATE"  # a run of the job is due, and waits for a free executor for too long
    NEVER_RAN = "NEVER_RAN"


class JobFilters(NamedTuple):
    """The filters of a list of jobs. A job must pass all of them."""

    status: frozenset[str] = frozenset()
    schedule_type: str = ""
    name: str = ""
    name_prefix: str = ""
    text: str = ""  # in the name or in a tag as `key:value`, in any case
    created_by: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    health: JobHealth | None = None
    pause_ends_before: datetime | None = None  # the pause of the job should have ended by then

    def matches(self, state: JobState, definition: DefinitionRow, now: datetime) -> bool:
        return (
            (not self.status or state.status in self.status)
            and (not self.schedule_type or state.kind == self.schedule_type)
            and (not self.name or definition.name == self.name)
            and definition.name.startswith(self.name_prefix)
            and (not self.created_by or definition.created_by == self.created_by)
            and all(definition.tags.get(key) == value for key, value in self.tags)
            and (not self.text or self._has_text(definition))
            and self._has_health(state, now)
            and (self.pause_ends_before is None or self._is_paused_past(state))
        )

    def _is_paused_past(self, state: JobState) -> bool:
        until = None if state.pause is None else state.pause.until
        return until is not None and until < cast(datetime, self.pause_ends_before)

    def _has_health(self, state: JobState, now: datetime) -> bool:
        """Return whether the job has the health. Only the index knows which jobs are failing."""
        if self.health is JobHealth.LATE:
            return any(waits_too_long(run, now) for run in state.runs)
        return self.health is not JobHealth.NEVER_RAN or not state.latest_run_id

    def _has_text(self, definition: DefinitionRow) -> bool:
        text = self.text.casefold()
        return any(text in part for part in searched_texts(definition.name, definition.tags))


NO_FILTERS = JobFilters()


class JobQuery(NamedTuple):
    filters: JobFilters = NO_FILTERS
    sort: JobSort = JobSort.CREATED


class JobIndexPage(NamedTuple):
    """The positions of some jobs, in the order of the list.

    `next_cursor` is None if no job follows. Otherwise the page may also be short or empty, because
    the index has read as many rows as one call may read.
    """

    positions: Sequence[Position]
    next_cursor: Position | None


class JobIndex(Protocol):
    """The list of jobs of each tenant. It may name jobs that no longer match, or that expired."""

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        """Return at most `limit` jobs after the position `after`.

        A job that keeps its place in the order is on exactly one page of a list.
        Raise `Invalid` if the store cannot sort in this order, or has no list of failing jobs.
        """


def searched_texts(name: str, tags: dict[str, str]) -> list[str]:
    """Return the texts that the filter `text` searches, without differences of case.

    >>> searched_texts("Nightly Report", {"Team": "Data"})
    ['nightly report', 'team:data']
    """
    return [name.casefold(), *(f"{key}:{value}".casefold() for key, value in tags.items())]
