"""The results of reads, before they are rendered."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from punctual.domain.job_state import JobState
from punctual.domain.run import Progress, Run
from punctual.engine.ports.rows import AttemptRow, DefinitionRow, Detail


class JobView(NamedTuple):
    """A job with its definition in force, and its latest run if the read asked for it."""

    state: JobState
    definition: DefinitionRow
    latest_run: "RunView | None" = None


class RunView(NamedTuple):
    """A run, alive or ended. `run.reason` says why a waiting run waits."""

    tenant: str
    job_id: str
    run: Run
    detail: Detail
    tzdata: str
    attempts: Sequence[AttemptRow] = ()  # attempts before the present or last one
    payload: Any = None
    has_payload: bool = False
    progress: Progress | None = None  # of a held run, as its holder last reported it


class Page(NamedTuple):
    """One page of a list. `next_cursor` is None on the last page."""

    items: Sequence[Any]
    next_cursor: tuple[str, ...] | None


class Explanation(NamedTuple):
    at: datetime
    occurrence: datetime | None
    outcome: str
    reason: str
    run_id: str | None
    previous: datetime | None
    next: datetime | None


class Output(NamedTuple):
    """The output of a run as bytes or as a link."""

    data: bytes
    content_type: str
    link: str | None = None
    truncated: bool = False


class LogPiece(NamedTuple):
    """A part of a run's log up to its end.

    `missing_bytes` counts stored bytes after this part that a damaged file lost.
    """

    data: bytes
    missing_bytes: int = 0


class UpcomingOccurrence(NamedTuple):
    at: datetime
    local: datetime
    job_id: str
    name: str
