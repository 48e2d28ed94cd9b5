"""The job state: the one small row of a job that holds everything that decides."""

from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum, StrEnum

from msgspec import Struct

from punctual.domain.run import Run, WaitingRun
from punctual.domain.schedules.schedule import Schedule
from punctual.domain.timestamps import Moment

DEFAULT_TASK_TYPE = "event"


class JobStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"


class ScheduleKind(StrEnum):
    IMMEDIATE = "IMMEDIATE"
    FUTURE = "FUTURE"
    CRON = "CRON"
    INTERVAL = "INTERVAL"


class MisfirePolicy(StrEnum):
    RUN_ONCE = "RUN_ONCE"
    RUN_ALL = "RUN_ALL"
    SKIP = "SKIP"


class OverlapPolicy(StrEnum):
    QUEUE = "QUEUE"
    SKIP = "SKIP"
    REPLACE = "REPLACE"


class Priority(IntEnum):
    HIGH = 0
    NORMAL = 1
    LOW = 2


class Lane(StrEnum):
    """A lane has its own queues and executors, so quick runs never wait for long ones."""

    QUICK = "quick"
    LONG = "long"


class Retry(Struct, frozen=True, omit_defaults=True, gc=False):
    """The backoff between the attempts of a run."""

    backoff_seconds: float = 5
    max_backoff_seconds: float = 300
    multiplier: float = 2
    jitter: bool = True


class Rules(
    Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    rename={"definition_ref": "body", "effective_at": "since_at"},
):
    """The rules of a run. They come from its definition and never change."""

    definition_ref: str  # the key of the definition row
    effective_at: Moment
    task_type: str = DEFAULT_TASK_TYPE
    lane: Lane = Lane.QUICK
    priority: Priority = Priority.NORMAL
    timeout_seconds: int = 300
    max_retries: int = 3
    retry: Retry = Retry()
    deadline_seconds: int | None = None
    at_most_once: bool = False
    memory_mb: int = 0  # that a script asks for; 0 is the default
    has_artifact: bool = False  # on AWS a detached runner fetches it


class JobLimits(Struct, frozen=True, omit_defaults=True, gc=False):
    """The limits of a job. A change acts at once, also on existing runs."""

    max_concurrency: int = 1
    overlap: OverlapPolicy = OverlapPolicy.QUEUE
    max_waiting: int = 100
    misfire: MisfirePolicy = MisfirePolicy.RUN_ONCE
    misfire_grace_seconds: int = 60
    max_runs: int | None = None
    jitter_ms: int = 0  # the fixed offset of this job

    @property
    def jitter(self) -> timedelta:
        return timedelta(milliseconds=self.jitter_ms)

    @property
    def grace(self) -> timedelta:
        return timedelta(seconds=self.misfire_grace_seconds)


class CatchUp(Struct, frozen=True, omit_defaults=True, gc=False, rename={"after_pause": "paused"}):
    """A catch-up: the missed occurrences up to `until`, to evaluate by `policy`."""

    until: Moment
    policy: MisfirePolicy
    after_pause: bool = False


class JobPause(Struct, frozen=True, omit_defaults=True, gc=False):
    """The pause of a job. At `until` the job resumes by itself."""

    at: Moment  # when the pause began
    by: str = ""  # the caller that began it
    until: Moment | None = None
    note: str = ""
    operation_id: str = ""  # the bulk operation that began it


class JobState(
    Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    rename={
        "definition": "def",
        "created_at": "made",
        "updated_at": "upd",
        "status": "state",
        "planned_until": "mark",
        "settled_ahead": "settled",
        "started_runs": "started",
        "wait_queue": "line",
        "unrecorded": "ended",
        "latest_run_id": "latest",
        "latest_not_run_id": "latest_not_run",
        "catch_up": "behind",
        "write_ids": "writers",
        "is_blank": "blank",
        "operation_memory": "ops",
    },
):
    """The state of a job. Only `decide` changes it; a swap on `version` writes it."""

    tenant: str
    job_id: str
    version: int  # each swap raises it
    edition: int  # only a client's change raises it; the ETag
    definition: int  # the edition of the definition in force
    status: JobStatus
    kind: ScheduleKind
    created_at: Moment
    updated_at: Moment
    schedule: Schedule | None
    rules: dict[int, Rules]  # of `definition`, and of the definitions of live runs
    limits: JobLimits = JobLimits()
    planned_until: Moment | None = None  # all occurrences up to this time are settled
    next_at: Moment | None = None  # nominal time of the next occurrence
    started_runs: int = 0  # scheduled runs that began since the schedule last changed
    runs: tuple[Run, ...] = ()  # live, oldest first
    wait_queue: tuple[WaitingRun, ...] = ()
    unrecorded: tuple[Run, ...] = ()  # until their history rows are known to exist
    latest_run_id: str = ""  # id of the newest run that is not SKIPPED or MISSED
    latest_not_run_id: str = ""
    catch_up: CatchUp | None = None
    pause: JobPause | None = None  # set while the job is PAUSED
    timer_at: Moment | None = None  # time of the timer for the next evaluation
    write_ids: tuple[str, ...] = ()  # write ids of the last few versions, newest last
    ended_at: Moment | None = None  # when the job ended; retention starts here
    is_blank: bool = False  # placeholder of a job that was created later than its timer
    notify: str = ""  # the statuses of each `notify` entry in force, as letters
    operation_memory: bytes = b""  # the operations that acted on the job lately
    # Occurrences with an outcome from before their time, because they were fired ahead. A change
    # of schedule can move `planned_until` back, and must not fire them again.
    settled_ahead: tuple[Moment, ...] = ()

    @property
    def current_rules(self) -> Rules:
        return self.rules[self.definition]


def task_type_of(run: Run, *states: JobState | None) -> str:
    """Return the task type of a run, by the first of these states that holds its rules.

    A state drops the rules of an older definition with its last live run.
    """
    for state in states:
        if state is not None and run.definition in state.rules:
            return state.rules[run.definition].task_type
    return DEFAULT_TASK_TYPE


def has_won(state: JobState, version: int, write_ids: Sequence[str]) -> bool:
    """Return whether the swap to `state` won, although its answer was lost.

    `version` and `write_ids` are those of the stored row. Only the write ids from the version of
    `state` on count. A request that won an earlier swap and lost this one left an earlier id.
    """
    write_id = state.write_ids[-1] if state.write_ids else ""
    later_versions = version - state.version
    return bool(write_id) and later_versions >= 0 and write_id in write_ids[-later_versions - 1 :]
