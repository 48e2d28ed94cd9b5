"""The head: the one small row of a job that holds all that decides."""

from datetime import timedelta
from enum import IntEnum, StrEnum

from msgspec import Struct

from punctual.domain.run import Run, WaitingRun
from punctual.domain.schedules.schedule import Schedule
from punctual.domain.utc import Moment


class JobStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"


class Kind(StrEnum):
    IMMEDIATE = "IMMEDIATE"
    FUTURE = "FUTURE"
    CRON = "CRON"
    INTERVAL = "INTERVAL"


class Misfire(StrEnum):
    RUN_ONCE = "RUN_ONCE"
    RUN_ALL = "RUN_ALL"
    SKIP = "SKIP"


class Overlap(StrEnum):
    QUEUE = "QUEUE"
    SKIP = "SKIP"
    REPLACE = "REPLACE"


class Priority(IntEnum):
    HIGH = 0
    NORMAL = 1
    LOW = 2


class Lane(StrEnum):
    """Quick work and long work never wait for each other."""

    QUICK = "quick"
    LONG = "long"


class Retry(Struct, frozen=True, omit_defaults=True, gc=False):
    """How long to wait between the attempts of one run."""

    backoff_seconds: float = 5
    max_backoff_seconds: float = 300
    multiplier: float = 2
    jitter: bool = True


class Rules(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a run obeys for all its life: those of the definition it was made with."""

    body: str  # the key of the body with this definition
    since_at: Moment
    task_type: str = "event"
    lane: Lane = Lane.QUICK
    priority: Priority = Priority.NORMAL
    timeout_seconds: int = 300
    max_retries: int = 3
    retry: Retry = Retry()
    deadline_seconds: int | None = None
    at_most_once: bool = False


class Limits(Struct, frozen=True, omit_defaults=True, gc=False):
    """What acts on a job at once when it changes, also on runs that exist."""

    max_concurrency: int = 1
    overlap: Overlap = Overlap.QUEUE
    max_waiting: int = 100
    misfire: Misfire = Misfire.RUN_ONCE
    misfire_grace_seconds: int = 60
    max_runs: int | None = None
    jitter_ms: int = 0  # this job's own fixed offset

    @property
    def jitter(self) -> timedelta:
        return timedelta(milliseconds=self.jitter_ms)

    @property
    def grace(self) -> timedelta:
        return timedelta(seconds=self.misfire_grace_seconds)


class CatchUp(Struct, frozen=True, omit_defaults=True, gc=False):
    """Occurrences up to `until` that are still to be judged, by this policy."""

    until: Moment
    policy: Misfire
    paused: bool = False


class JobState(
    Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    rename={"definition": "def", "created_at": "made", "updated_at": "upd"},
):
    """Changed only by `decide`, written only by compare and swap on `version`."""

    tenant: str
    job_id: str
    version: int  # raised by every swap
    edition: int  # raised by a client's change only: the ETag
    definition: int  # the edition whose body is in force
    state: JobStatus
    kind: Kind
    created_at: Moment
    updated_at: Moment
    schedule: Schedule | None
    rules: dict[int, Rules]  # of `definition`, and of those that runs alive were made with
    limits: Limits = Limits()
    mark: Moment | None = None  # occurrences up to here are dealt with
    next_at: Moment | None = None  # the next occurrence, nominal
    started: int = 0  # scheduled runs begun since the schedule last changed
    runs: tuple[Run, ...] = ()  # alive, oldest first
    line: tuple[WaitingRun, ...] = ()
    ended: tuple[Run, ...] = ()  # until their history row is known to be written
    latest: str = ""  # the run last made that is not SKIPPED or MISSED
    latest_not_run: str = ""
    behind: CatchUp | None = None
    timer_at: Moment | None = None  # the timer that carries the next look
    writers: tuple[str, ...] = ()  # of the last few versions, newest last
    ended_at: Moment | None = None  # when the job came to its end: retention counts from here
    blank: bool = False  # a place held for a creation that was slower than its timer
    notify: str = ""  # for which statuses each entry of the definition in force is

    @property
    def current(self) -> Rules:
        return self.rules[self.definition]
