"""A run in the job state: live, in the wait queue, or ended without a history row."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain.timestamps import Moment


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


HELD_RUN_STATUSES = frozenset({RunStatus.CLAIMED, RunStatus.RUNNING})
ENDED_RUN_STATUSES = frozenset(
    {
        RunStatus.SUCCESS,
        RunStatus.FAILED,
        RunStatus.TIMED_OUT,
        RunStatus.CANCELLED,
        RunStatus.SKIPPED,
        RunStatus.MISSED,
    }
)
# In these an attempt has not begun. A run may have been claimed, and returned unstarted.
UNSTARTED_RUN_STATUSES = frozenset({RunStatus.WAITING, RunStatus.QUEUED, RunStatus.CLAIMED})
NOT_RUN_STATUSES = frozenset({RunStatus.SKIPPED, RunStatus.MISSED})


class Trigger(StrEnum):
    SCHEDULE = "SCHEDULE"
    RUN_NOW = "RUN_NOW"
    BACKFILL = "BACKFILL"
    RETRY = "RETRY"


class Reason(StrEnum):
    """Why a run waits, or why it ended without SUCCESS."""

    NONE = ""
    CONCURRENCY = "CONCURRENCY"
    RESOURCES = "RESOURCES"  # on the node in views only; its job states say QUEUED
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


# A run that waits for one of these is queued again at its `next_at`.
TIMED_WAIT_REASONS = frozenset({Reason.BACKOFF, Reason.RESOURCES})

# A run that is due should start within this time.
MAX_START_DELAY = timedelta(seconds=15)

# The letters of `Run.past_attempts`: how each earlier attempt ended.
FAILED_LETTER, TIMED_OUT_LETTER, LOST_LETTER = "F", "T", "L"
ATTEMPT_STATUS_BY_LETTER = {
    FAILED_LETTER: RunStatus.FAILED.value,
    TIMED_OUT_LETTER: RunStatus.TIMED_OUT.value,
    LOST_LETTER: "LOST",
}


class Progress(Struct, frozen=True, omit_defaults=True, gc=False):
    """How far the work of an attempt is, as its executor last reported it."""

    percent: float | None = None
    text: str = ""


class Lease(Struct, frozen=True, omit_defaults=True, gc=False):
    """The holder of `token` has the run until `until`. The first renewal sets `is_renewed`.

    The lease also keeps the last progress, because a renewal writes nothing else.
    """

    token: int
    until: Moment
    is_renewed: bool = False
    progress: Progress | None = None

    def renewed(self, until: datetime, progress: Progress | None) -> "Lease":
        """Return the lease after a renewal. One without progress keeps the last one."""
        return Lease(self.token, until, is_renewed=True, progress=progress or self.progress)


class WaitingRun(
    Struct,
    frozen=True,
    array_like=True,
    gc=False,
    rename={"is_caught_up": "caught_up", "has_own_payload": "own_payload"},
):
    """A run in the wait queue: only the fields that queue it later, packed."""

    run_id: str
    definition: int
    scheduled_at: Moment
    due_at: Moment
    created_at: Moment
    trigger: Trigger = Trigger.SCHEDULE
    is_caught_up: bool = False  # by RUN_ALL; not counted against max_waiting
    has_own_payload: bool = False
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
        "executor_id": "who",
        "runner_id": "runner",
        "started_at": "first",
        "attempt_at": "start",
        "next_at": "next",
        "has_own_payload": "own",
        "retried_from": "of",
        "ended_at": "end",
        "inline_output": "out",
        "changed_at": "mod",
        "admitted_at": "in",
        "past_attempts": "past",
        "cancel_reason": "cancel",
        "send_count": "sends",
        "return_count": "returns",
        "failed_starts": "unstarted",
        "occurrence_count": "count",
        "held_since": "held",
        "queued_again_at": "again",
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
    executor_id: str = ""
    nonce: str = ""
    started_at: Moment | None = None
    attempt_at: Moment | None = None
    next_at: Moment | None = None
    past_attempts: str = ""
    cancel_reason: Reason = Reason.NONE
    sent_at: Moment | None = None
    send_count: int = 0
    return_count: int = 0  # claims returned before the work began
    has_own_payload: bool = False
    retried_from: str = ""
    ended_at: Moment | None = None
    occurrence_count: int = 1
    last_at: Moment | None = None
    inline_output: str = ""  # the output, if it is only a few bytes
    # When a run that waited past its due time left the wait queue.
    admitted_at: Moment | None = None
    runner_id: str = ""  # of the external process that the claim is bound to
    failed_starts: int = 0  # returns because the platform could not start the work
    held_since: Moment | None = None  # when the claim was drawn, if its work began later
    queued_again_at: Moment | None = None  # when the run last became QUEUED after a claim

    @property
    def is_held(self) -> bool:
        return self.status in HELD_RUN_STATUSES

    @property
    def has_begun(self) -> bool:
        return self.started_at is not None

    @property
    def was_lost(self) -> bool:
        """Return whether the run ended because its holder was lost, without a report."""
        return self.reason is Reason.LOST or not self.executor_id

    @property
    def first_start_at(self) -> datetime | None:
        """Return when the work first began. A claim that has begun nothing is no start."""
        has_not_run = self.status in UNSTARTED_RUN_STATUSES and not self.past_attempts
        return None if has_not_run else self.started_at

    @property
    def queued_at(self) -> datetime | None:
        """Return when the run last became QUEUED.

        None stands for a run that waits, or that ended while it waited.
        """
        was_queued = self.sent_at is not None or self.attempt_at is not None
        if self.status is RunStatus.WAITING or not (was_queued or self.status is RunStatus.QUEUED):
            return None
        return self.queued_again_at or self.admitted_at or self.created_at

    @property
    def claimed_at(self) -> datetime | None:
        """Return when the claim was drawn that holds the run, or that the run ended under."""
        if not self.is_held and self.ended_at is None:
            return None
        return self.held_since or self.attempt_at

    @property
    def duration(self) -> timedelta | None:
        """Return how long the last attempt of an ended run took, None if it ended between two."""
        if self.ended_at is None or self.attempt_at is None or self.first_start_at is None:
            return None
        return max(self.ended_at - self.attempt_at, timedelta(0))  # of two clocks on AWS

    @property
    def can_miss_deadline(self) -> bool:
        """Return whether nothing of the run has begun, and no claim may begin it."""
        return not self.is_held and self.first_start_at is None

    @property
    def start_lateness(self) -> timedelta | None:
        """Return how long after its due time the work first began."""
        return None if self.first_start_at is None else self.first_start_at - self.due_at

    def is_bound_to(self, runner_id: str | None) -> bool:
        """Return whether the holder may be this runner. None stands for our own executor."""
        return runner_id is None or self.runner_id in ("", runner_id)

    @property
    def attempt(self) -> int:
        """Return the number of the running, next or last attempt."""
        return len(self.past_attempts) + 1

    @property
    def lateness(self) -> timedelta | None:
        """Return how long after its due time the run was first claimed."""
        return None if self.started_at is None else self.started_at - self.due_at

    @property
    def wait_queue_time(self) -> timedelta:
        """Return how long a limit or a pause of the job held the run. This is not lateness."""
        if self.admitted_at is None:
            return timedelta(0)
        return max(timedelta(0), self.admitted_at - max(self.created_at, self.due_at))


def from_waiting(
    waiting: WaitingRun, status: RunStatus, changed_at: datetime, **fields: Any
) -> Run:
    """Return the run of an entry of the wait queue, with more `fields`."""
    return Run(
        run_id=waiting.run_id,
        status=status,
        definition=waiting.definition,
        scheduled_at=waiting.scheduled_at,
        due_at=waiting.due_at,
        created_at=waiting.created_at,
        changed_at=changed_at,
        trigger=waiting.trigger,
        has_own_payload=waiting.has_own_payload,
        retried_from=waiting.retried_from,
        **fields,
    )


def waits_too_long(run: Run, now: datetime) -> bool:
    """Return whether the run is late for another reason than the rules of its own job.

    A wait for a free place of the job, for a backoff or for a resume does not count.
    """
    waits_for_executor = run.status is RunStatus.QUEUED or (
        run.status is RunStatus.WAITING and run.reason is Reason.RESOURCES
    )
    ready_at = max(run.due_at, run.queued_again_at or run.admitted_at or run.created_at)
    return waits_for_executor and now - ready_at > MAX_START_DELAY


def to_waiting(run: Run) -> WaitingRun:
    """Return an unclaimed queued run as an entry of the wait queue."""
    return WaitingRun(
        run_id=run.run_id,
        definition=run.definition,
        scheduled_at=run.scheduled_at,
        due_at=run.due_at,
        created_at=run.created_at,
        trigger=run.trigger,
        has_own_payload=run.has_own_payload,
        retried_from=run.retried_from,
    )


def with_claim(
    run: Run, status: RunStatus, token: int, executor_id: str, nonce: str, now: datetime
) -> Run:
    """Return the run under a new claim."""
    return replace(
        run,
        status=status,
        reason=Reason.NONE,
        token=token,
        executor_id=executor_id,
        nonce=nonce,
        runner_id="",
        started_at=run.started_at or now,
        attempt_at=now,
        held_since=None,
        changed_at=now,
        sent_at=None,
        send_count=0,
    )
