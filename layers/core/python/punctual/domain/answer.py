"""The answer of `decide` to the caller."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from punctual.domain.draft import Draft
from punctual.domain.run import Run


class Verdict(StrEnum):
    """The outcome of an event for its caller."""

    OK = "OK"
    GONE = "GONE"  # the job has no live run with this id
    HELD = "HELD"  # another claim holds the run
    EARLY = "EARLY"  # the run is not due before `retry_at`
    NOT_QUEUED = "NOT_QUEUED"  # the run waits; another message will announce it
    FENCED = "FENCED"  # the token is not the current one
    CONFLICT = "CONFLICT"  # the job status does not allow the event
    FULL = "FULL"  # the wait queue of the job is full
    STALE = "STALE"  # the event was made for another version of the job


class Answer(Struct, frozen=True, gc=False):
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    retry_at: datetime | None = None


OK = Answer()


def find_live_or_ended(draft: Draft, run_id: str) -> Run | None:
    """Return the live or ended run with this id."""
    run = draft.find_run(run_id)
    if run is None:
        run = next(
            (ended_run for ended_run in draft.unrecorded if ended_run.run_id == run_id), None
        )
    return run
