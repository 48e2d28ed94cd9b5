"""What came of an event, for who brought it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from punctual.domain.draft import Draft
from punctual.domain.run import Run


class Verdict(StrEnum):
    """What came of an event, for who brought it."""

    OK = "OK"
    GONE = "GONE"  # no such run among the living
    HELD = "HELD"  # another holds it: come again at `again_at`
    EARLY = "EARLY"  # not before `again_at`
    NOT_QUEUED = "NOT_QUEUED"  # it waits; another message will come
    FENCED = "FENCED"  # the token is not the holder's any more
    CONFLICT = "CONFLICT"  # the job's state does not allow it
    FULL = "FULL"  # the job's line holds no more
    STALE = "STALE"  # it was made for another version of the job


class Answer(Struct, frozen=True, gc=False):
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    again_at: datetime | None = None


OK = Answer()


def now_of(d: Draft, run_id: str) -> Run | None:
    """A run as it stands, alive or ended."""
    run = d.run(run_id)
    if run is None:
        run = next((ended for ended in d.ended if ended.run_id == run_id), None)
    return run
