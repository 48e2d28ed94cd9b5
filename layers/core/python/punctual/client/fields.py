"""The fields of a job, named as in the API."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Literal, Required, TypedDict

ScheduleType = Literal["IMMEDIATE", "FUTURE", "CRON", "INTERVAL"]
Gap = Literal["NEXT", "SKIP", "SHIFT"]
Fold = Literal["FIRST", "SECOND", "BOTH"]
Counted = Literal["SCHEDULED", "COMPLETED"]
Misfire = Literal["RUN_ONCE", "RUN_ALL", "SKIP"]
Priority = Literal["HIGH", "NORMAL", "LOW"]
Overlap = Literal["QUEUE", "SKIP", "REPLACE"]
Delivery = Literal["AT_LEAST_ONCE", "AT_MOST_ONCE"]
Output = Literal["keep", "discard"]
JobState = Literal["SCHEDULED", "PAUSED", "CANCELLED", "COMPLETED"]
RunState = Literal[
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
Trigger = Literal["SCHEDULE", "RUN_NOW", "BACKFILL", "RETRY"]
RunTime = Literal["scheduled", "started", "ended"]
Role = Literal["viewer", "operator", "editor", "admin"]
Outcome = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]

Moment = datetime | str  # with a time zone; a string is RFC 3339
Seconds = int | timedelta
Task = Mapping[str, Any]


class RetryFields(TypedDict, total=False):
    backoff_seconds: float | timedelta
    max_backoff_seconds: float | timedelta
    multiplier: float
    jitter: bool


class Notify(TypedDict):
    on: Sequence[Outcome]
    url: str


class _Schedule(TypedDict, total=False):
    schedule_time: Moment | None
    cron_expression: str | None
    timezone: str | None
    dst_gap: Gap | None
    dst_fold: Fold | None
    interval_seconds: Seconds | None
    interval_from: Counted | None
    start_time: Moment | None
    end_time: Moment | None
    max_runs: int | None
    exclude: Sequence[date | str] | None


class ScheduleFields(_Schedule, total=False):
    """The fields of a schedule."""

    schedule_type: Required[ScheduleType]


class _Rest(TypedDict, total=False):
    jitter_seconds: Seconds | None
    misfire_policy: Misfire | None
    misfire_grace_seconds: Seconds | None
    task: Task | None
    payload: Any
    priority: Priority | None
    max_concurrency: int | None
    overlap_policy: Overlap | None
    max_waiting: int | None
    timeout_seconds: Seconds | None
    max_retries: int | None
    retry: RetryFields | None
    deadline_seconds: Seconds | None
    delivery: Delivery | None
    notify: Sequence[Notify] | None
    output: Output | None
    tags: Mapping[str, str] | None


class NewJob(ScheduleFields, _Rest, total=False):
    """The fields of a new job. None selects a field's default."""

    name: Required[str]


class JobChanges(_Schedule, _Rest, total=False):
    """The fields of a job that a change may set."""

    name: str
    schedule_type: ScheduleType
