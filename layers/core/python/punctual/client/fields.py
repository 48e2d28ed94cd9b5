"""The fields of a job, named as in the API."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Literal, Required, TypedDict

ScheduleType = Literal["IMMEDIATE", "FUTURE", "CRON", "INTERVAL"]
Gap = Literal["NEXT", "SKIP", "SHIFT"]
Fold = Literal["FIRST", "SECOND", "BOTH"]
IntervalFrom = Literal["SCHEDULED", "COMPLETED"]
MisfirePolicy = Literal["RUN_ONCE", "RUN_ALL", "SKIP"]
Priority = Literal["HIGH", "NORMAL", "LOW"]
OverlapPolicy = Literal["QUEUE", "SKIP", "REPLACE"]
Delivery = Literal["AT_LEAST_ONCE", "AT_MOST_ONCE"]
Output = Literal["keep", "discard"]
JobStatusName = Literal["SCHEDULED", "PAUSED", "CANCELLED", "COMPLETED"]
JobHealth = Literal["FAILING", "LATE", "NEVER_RAN"]
JobSort = Literal["created", "name", "next_run"]
RunStatusName = Literal[
    "WAITING",
    "QUEUED",
    "CLAIMED",
    "RUNNING",
    "SUCCESS",
    "FAILED",
    "TIMED_OUT",
    "CANCELLED",
    "SKIPPED",
    "MISSED",
]
ReasonCode = Literal[
    "CONCURRENCY",
    "RESOURCES",
    "PAUSED",
    "BACKOFF",
    "OVERLAP",
    "QUEUE_FULL",
    "COALESCED",
    "RESCHEDULED",
    "MAX_RUNS",
    "DEADLINE",
    "OUTAGE",
    "REPLACED",
    "CANCELLED",
    "LOST",
    "SHUTDOWN",
    "POISON",
]
Trigger = Literal["SCHEDULE", "RUN_NOW", "BACKFILL", "RETRY"]
RunTime = Literal["scheduled", "started", "ended"]
Role = Literal["viewer", "operator", "editor", "admin"]
Outcome = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]

TimeValue = datetime | str  # with a time zone; a string is RFC 3339
DurationValue = int | timedelta
Task = Mapping[str, Any]


class RetryFields(TypedDict, total=False):
    backoff_seconds: float | timedelta
    max_backoff_seconds: float | timedelta
    multiplier: float
    jitter: bool


class Notify(TypedDict):
    on: Sequence[Outcome]
    url: str


class _ScheduleFields(TypedDict, total=False):
    schedule_time: TimeValue | None
    cron_expression: str | None
    timezone: str | None
    dst_gap: Gap | None
    dst_fold: Fold | None
    interval_seconds: DurationValue | None
    interval_from: IntervalFrom | None
    start_time: TimeValue | None
    end_time: TimeValue | None
    max_runs: int | None
    exclude: Sequence[date | str] | None


class ScheduleFields(_ScheduleFields, total=False):
    """The fields of a schedule."""

    schedule_type: Required[ScheduleType]


class _OtherJobFields(TypedDict, total=False):
    jitter_seconds: DurationValue | None
    misfire_policy: MisfirePolicy | None
    misfire_grace_seconds: DurationValue | None
    task: Task | None
    payload: Any
    priority: Priority | None
    max_concurrency: int | None
    overlap_policy: OverlapPolicy | None
    max_waiting: int | None
    timeout_seconds: DurationValue | None
    max_retries: int | None
    retry: RetryFields | None
    deadline_seconds: DurationValue | None
    delivery: Delivery | None
    notify: Sequence[Notify] | None
    output: Output | None
    tags: Mapping[str, str] | None


class NewJob(ScheduleFields, _OtherJobFields, total=False):
    """The fields of a new job. None selects a field's default."""

    name: Required[str]


class JobChanges(_ScheduleFields, _OtherJobFields, total=False):
    """The fields of a job that a change may set."""

    name: str
    schedule_type: ScheduleType
