"""The results of reads, before they are rendered."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import DEFAULT_TASK_TYPE, JobState
from punctual.domain.run import Progress, Run
from punctual.engine.ports.rows import AttemptRow, DefinitionRow, Detail, JobLabel
from punctual.engine.queries.recent_runs import NO_OUTCOMES, Outcomes

CONTENT_PIECE_BYTES = 256 * 1024


class JobView(NamedTuple):
    """A job with its definition in force, and its latest run if the read asked for it."""

    state: JobState
    definition: DefinitionRow
    latest_run: "RunView | None" = None
    position: tuple[str, ...] = ()  # in the list that it was read for
    outcomes: Outcomes = NO_OUTCOMES


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
    task_type: str = DEFAULT_TASK_TYPE
    label: JobLabel | None = None  # of its job, if the read asked for it


class Explanation(NamedTuple):
    at: datetime
    occurrence: datetime | None
    outcome: str
    reason: str
    run_id: str | None
    previous: datetime | None
    next: datetime | None


class LongContent(NamedTuple):
    """Content that is read in pieces, because it is too long for the memory."""

    size: int
    read: Callable[[int, int], bytes | None]  # from the first offset up to the second

    def pieces(self) -> Iterator[bytes]:
        """Yield the content. Raise `Unavailable` if it was removed in between."""
        for start in range(0, self.size, CONTENT_PIECE_BYTES):
            end = min(start + CONTENT_PIECE_BYTES, self.size)
            piece = self.read(start, end)
            if piece is None or len(piece) < end - start:
                raise Unavailable("The content was removed while it was read.")
            yield piece


class Output(NamedTuple):
    """The output of a run as bytes, as a link, or as content that is read in pieces."""

    data: bytes
    content_type: str
    link: str | None = None
    truncated: bool = False
    content: LongContent | None = None


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
