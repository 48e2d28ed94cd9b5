"""A run as its job's head keeps it: alive, waiting in line, or ended and not yet in the history."""

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from punctual.domain.utc import Moment


class RunStatus(StrEnum):
    WAITING = "WAITING"
    QUEUED = "QUEUED"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"


HELD = frozenset({RunStatus.CLAIMED, RunStatus.RUNNING})
ENDED = frozenset(
    {
        RunStatus.SUCCESS,
        RunStatus.FAILED,
        RunStatus.TIMED_OUT,
        RunStatus.CANCELLED,
        RunStatus.SKIPPED,
        RunStatus.MISSED,
    }
)
NOT_RUN = frozenset({RunStatus.SKIPPED, RunStatus.MISSED})


class Trigger(StrEnum):
    SCHEDULE = "SCHEDULE"
    RUN_NOW = "RUN_NOW"
    BACKFILL = "BACKFILL"
    RETRY = "RETRY"


class Reason(StrEnum):
    """Why a run waits, was skipped, missed, lost or cancelled."""

    NONE = ""
    CONCURRENCY = "CONCURRENCY"
    PAUSED = "PAUSED"
    BACKOFF = "BACKOFF"
    OVERLAP = "OVERLAP"
    QUEUE_FULL = "QUEUE_FULL"
    COALESCED = "COALESCED"
    RESCHEDULED = "RESCHEDULED"
    MAX_RUNS = "MAX_RUNS"
    DEADLINE = "DEADLINE"
    OUTAGE = "OUTAGE"
    REPLACED = "REPLACED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"
    SHUTDOWN = "SHUTDOWN"
    POISON = "POISON"


# How one former attempt ended, a letter each in `Run.past`.
FAILED, TIMED_OUT, LOST = "F", "T", "L"
PAST = {
    FAILED: RunStatus.FAILED.value,
    TIMED_OUT: RunStatus.TIMED_OUT.value,
    LOST: "LOST",
}


class Lease(Struct, frozen=True, omit_defaults=True, gc=False):
    """A claim's life: it belongs to `token`'s holder until `until`."""

    token: int
    until: Moment
    beaten: bool = False


class WaitingRun(Struct, frozen=True, array_like=True, gc=False):
    """A run in line: all that is needed to queue it later, packed."""

    run_id: str
    definition: int
    scheduled_at: Moment
    due_at: Moment
    created_at: Moment
    trigger: Trigger = Trigger.SCHEDULE
    caught_up: bool = False  # of an outage: does not count against max_waiting
    own_payload: bool = False
    retried_from: str = ""


class Run(
    Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    rename={
        "run_id": "id",
        "status": "st",
        "definition": "def",
        "scheduled_at": "at",
        "due_at": "due",
        "created_at": "made",
        "trigger": "by",
        "token": "tok",
        "claimer": "who",
        "started_at": "first",
        "attempt_at": "start",
        "next_at": "next",
        "own_payload": "own",
        "retried_from": "of",
        "ended_at": "end",
        "note": "out",
        "changed_at": "mod",
        "let_in_at": "in",
    },
):
    """One run: what it is, which attempt it is at, and who holds it."""

    run_id: str
    status: RunStatus
    definition: int
    scheduled_at: Moment
    due_at: Moment
    created_at: Moment
    changed_at: Moment
    trigger: Trigger = Trigger.SCHEDULE
    reason: Reason = Reason.NONE
    token: int = 0
    claimer: str = ""
    nonce: str = ""
    started_at: Moment | None = None
    attempt_at: Moment | None = None
    next_at: Moment | None = None
    past: str = ""
    cancel: Reason = Reason.NONE
    sent_at: Moment | None = None
    sends: int = 0
    returns: int = 0  # claims given back before the work began
    own_payload: bool = False
    retried_from: str = ""
    ended_at: Moment | None = None
    count: int = 1
    last_at: Moment | None = None
    note: str = ""  # what it answered, where that is a few bytes
    let_in_at: Moment | None = None  # of one that stood in line beyond its time

    @property
    def held(self) -> bool:
        return self.status in HELD

    @property
    def begun(self) -> bool:
        return self.started_at is not None

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs, or comes next, or was the last."""
        return len(self.past) + 1

    @property
    def lateness(self) -> timedelta | None:
        return None if self.started_at is None else self.started_at - self.due_at

    @property
    def in_line(self) -> timedelta:
        """How long its own job's limit or pause held it: for that nobody is late."""
        if self.let_in_at is None:
            return timedelta(0)
        return max(timedelta(0), self.let_in_at - max(self.created_at, self.due_at))
