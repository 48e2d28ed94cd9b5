"""The enumerated words that options take.

They repeat words of the domain and of the API. Each completion of a word imports this module, and
the domain takes longer to import. A test compares them.
"""

from enum import StrEnum


class JobStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"


class JobHealth(StrEnum):
    FAILING = "FAILING"
    LATE = "LATE"
    NEVER_RAN = "NEVER_RAN"


class JobSort(StrEnum):
    CREATED = "created"
    NAME = "name"
    NEXT_RUN = "next_run"


class ScheduleType(StrEnum):
    IMMEDIATE = "IMMEDIATE"
    FUTURE = "FUTURE"
    CRON = "CRON"
    INTERVAL = "INTERVAL"


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


class FinishStatus(StrEnum):
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"


class Trigger(StrEnum):
    SCHEDULE = "SCHEDULE"
    RUN_NOW = "RUN_NOW"
    BACKFILL = "BACKFILL"
    RETRY = "RETRY"


class RunReason(StrEnum):
    CONCURRENCY = "CONCURRENCY"
    RESOURCES = "RESOURCES"
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


class RunTime(StrEnum):
    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


class Missed(StrEnum):
    SKIP = "SKIP"
    RUN_ONCE = "RUN_ONCE"
    RUN_ALL = "RUN_ALL"


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


class Gap(StrEnum):
    NEXT = "NEXT"
    SKIP = "SKIP"
    SHIFT = "SHIFT"


class Fold(StrEnum):
    FIRST = "FIRST"
    SECOND = "SECOND"
    BOTH = "BOTH"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class CronReferee(StrEnum):
    CRONITER = "croniter"
