"""A run in the job state: live, in the wait queue, or ended without a history row."""

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
    """Why a run waits, or why it ended without SUCCESS."""

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


# The letters of `Run.past`: how each earlier attempt ended.
FAILED, TIMED_OUT, LOST = "F", "T", "L"
PAST = {
    FAILED: RunStatus.FAILED.value,
    TIMED_OUT: RunStatus.TIMED_OUT.value,
    LOST: "LOST",
}


class Lease(Struct, frozen=True, omit_defaults=True, gc=False):
    """The holder of `token` has the run until `until`. The first renewal sets `beaten`."""

    token: int
    until: Moment
    beaten: bool = False


class WaitingRun(Struct, frozen=True, array_like=True, gc=False):
    """A run in the wait queue: only the fields that queue it later, packed."""

    run_id: str
    definition: int
    scheduled_at: Moment
    due_at: Moment
    created_at: Moment
    trigger: Trigger = Trigger.SCHEDULE
    caught_up: bool = False  # by RUN_ALL; not counted against max_waiting
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
    """A run with its current attempt and the claim on it."""

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
    returns: int = 0  # claims returned before the work began
    own_payload: bool = False
    retried_from: str = ""
    ended_at: Moment | None = None
    count: int = 1
    last_at: Moment | None = None
    note: str = ""  # the output, if it is only a few bytes
    let_in_at: Moment | None = None  # when a run that waited past its due time left the wait queue

    @property
    def held(self) -> bool:
        return self.status in HELD

    @property
    def begun(self) -> bool:
        return self.started_at is not None

    @property
    def attempt(self) -> int:
        """Return the number of the running, next or last attempt."""
        return len(self.past) + 1

    @property
    def lateness(self) -> timedelta | None:
        return None if self.started_at is None else self.started_at - self.due_at

    @property
    def in_line(self) -> timedelta:
        """Return how long a limit or a pause of the job held the run. This is not lateness."""
        if self.let_in_at is None:
            return timedelta(0)
        return max(timedelta(0), self.let_in_at - max(self.created_at, self.due_at))
