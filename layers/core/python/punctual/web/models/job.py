"""The types of a job's fields. `job_rules` checks what they mean."""

from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.web.models.notify import MAX_NOTIFY_ENTRIES, Notify
from punctual.web.models.schedule import ScheduleFields, StrictModel
from punctual.web.models.task import MAX_LONG_TIMEOUT_SECONDS, Task


class Retry(StrictModel):
    backoff_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    max_backoff_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = None
    multiplier: Annotated[float, Field(ge=1, le=100)] | None = None
    jitter: bool | None = None


class JobFields(ScheduleFields):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    jitter_seconds: Annotated[int, Field(ge=0, le=3_600)] | None = None
    misfire_policy: Literal["RUN_ONCE", "RUN_ALL", "SKIP"] | None = None
    misfire_grace_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    task: Task | None = None
    payload: Any = None
    priority: Literal["HIGH", "NORMAL", "LOW"] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=100)] | None = None
    overlap_policy: Literal["QUEUE", "SKIP", "REPLACE"] | None = None
    max_waiting: Annotated[int, Field(ge=1, le=1_000)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_LONG_TIMEOUT_SECONDS)] | None = None
    max_retries: Annotated[int, Field(ge=0, le=100)] | None = None
    retry: Retry | None = None
    deadline_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    delivery: Literal["AT_LEAST_ONCE", "AT_MOST_ONCE"] | None = None
    notify: Annotated[list[Notify], Field(max_length=MAX_NOTIFY_ENTRIES)] | None = None
    output: Literal["keep", "discard"] | None = None
    tags: Annotated[dict[str, str], Field(max_length=50)] | None = None


# Answers show these fields, and only the server sets them.
READ_ONLY_FIELDS = frozenset(
    {
        "job_id",
        "status",
        "next_run_time",
        "pause",
        "latest_run",
        "usual_duration_ms",
        "created_at",
        "created_by",
        "updated_at",
        "version",
    }
)
