"""The values that `decide` returns: the answer to the caller, and the decision."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from punctual.domain.draft import Draft
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run


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
    """The answer of one event to its caller."""

    verdict: Verdict = Verdict.OK
    run: Run | None = None
    retry_at: datetime | None = None


OK = Answer()


def find_live_or_ended(draft: Draft, run_id: str) -> Run | None:
    """Return the live or ended run with this id."""
    for run in (*draft.runs, *draft.unrecorded):
        if run.run_id == run_id:
            return run
    return None


class Decision(Struct, frozen=True, gc=False):
    """The new job state, and what the caller writes and sends.

    `state` is the old object if nothing changed.
    """

    state: JobState
    changed: bool
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    retry_at: datetime | None = None
    timer_at: datetime | None = None  # the timer to put before the swap
    leases: Mapping[str, Lease | None] = {}  # written with the swap; None deletes
    required_leases: Mapping[str, Lease] = {}  # the swap fails unless these leases are as read
    runs_to_send: tuple[Run, ...] = ()
    runs_to_record: tuple[Run, ...] = ()  # ended runs that need a history row
    run_ids_to_stop: tuple[str, ...] = ()  # ids of held runs to stop
    ended_attempts: tuple[tuple[Run, str], ...] = ()  # lost, or failed before a retry
