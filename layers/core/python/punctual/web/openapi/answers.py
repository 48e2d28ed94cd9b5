"""The models of answers. The document shows them, and tests check every answer against them.

The views do not use these models, so they cost nothing at run time.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.domain.run import Reason, RunStatus, Trigger
from punctual.web.models.task import Task

_REASONS = [reason.value for reason in Reason if reason]
# The outcomes of a run, or of a time without a run.
_OUTCOMES = [*RunStatus, "PLANNED", "NOT_SCHEDULED", "EXCLUDED", "PAUSED"]
_OFFSET_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d(:\d\d)?$"

Id = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Time = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        json_schema_extra={"format": "date-time"},
    ),
]
Local = Annotated[str, Field(pattern=_OFFSET_TIME)]
Address = Annotated[str, Field(json_schema_extra={"format": "uri-reference"})]
Count = Annotated[int, Field(ge=0)]
NextToken = Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")] | None


class ResponseModel(BaseModel):
    """An answer. It may get more fields, so a client must ignore unknown ones."""

    model_config = ConfigDict(strict=True)


class RunReason(ResponseModel):
    code: Annotated[str, Field(json_schema_extra={"enum": _REASONS})]
    text: str


class ListedRun(ResponseModel):
    run_id: Id
    job_id: Id
    job_name: str | None
    task_type: str
    job_version: Annotated[int, Field(ge=1)]
    trigger: Trigger
    retried_from: Id | None
    status: RunStatus
    reason: RunReason | None
    scheduled_time: Time
    due_time: Time
    queued_at: Time | None
    claimed_at: Time | None
    start_time: Time | None
    end_time: Time | None
    modified_time: Time
    created_at: Time
    next_attempt_time: Time | None
    lateness_ms: float | None
    duration_ms: Annotated[float, Field(ge=0)] | None
    attempt_number: Count
    executor_id: str | None
    error_message: str | None
    exit_code: int | None
    log_url: Address | None
    output_url: Address | None
    output_truncated: bool
    log_truncated: bool
    output_discarded: bool
    count: Annotated[int, Field(ge=1)]
    tzdata: str
    last_scheduled_time: Time | None = None
    http_status: Annotated[int, Field(ge=100, le=599)] | None = None
    http_headers: list[Annotated[list[str], Field(min_length=2, max_length=2)]] | None = None
    payload: Any = None


class Attempt(ResponseModel):
    attempt_number: Annotated[int, Field(ge=1)]
    start_time: Time
    end_time: Time | None
    status: Annotated[str, Field(json_schema_extra={"enum": [*RunStatus, "LOST"]})]
    executor_id: str | None
    error_message: str | None


class RunProgress(ResponseModel):
    percent: Annotated[float, Field(ge=0, le=100)] | None
    text: str | None


class Run(ListedRun):
    attempts: list[Attempt]
    progress: RunProgress | None


class RunPage(ResponseModel):
    runs: list[ListedRun]
    next_token: NextToken


class ShownRetry(ResponseModel):
    backoff_seconds: float
    max_backoff_seconds: float
    multiplier: float
    jitter: bool


class ShownNotify(ResponseModel):
    on: list[str]
    url: str


class JobPause(ResponseModel):
    until: Time | None
    note: str | None
    by: str
    at: Time


class JobDefinition(ResponseModel):
    name: str
    schedule_type: ScheduleKind
    schedule_time: Time | None
    cron_expression: str | None
    timezone: str | None
    dst_gap: Literal["NEXT", "SKIP", "SHIFT"] | None
    dst_fold: Literal["FIRST", "SECOND", "BOTH"] | None
    interval_seconds: int | None
    interval_from: Literal["SCHEDULED", "COMPLETED"] | None
    start_time: Time | None
    end_time: Time | None
    max_runs: int | None
    exclude: list[str]
    jitter_seconds: int
    misfire_policy: Literal["RUN_ONCE", "RUN_ALL", "SKIP"]
    misfire_grace_seconds: int
    task: Task
    payload: Any
    priority: Literal["HIGH", "NORMAL", "LOW"]
    max_concurrency: int
    overlap_policy: Literal["QUEUE", "SKIP", "REPLACE"]
    max_waiting: int
    timeout_seconds: int
    max_retries: int
    retry: ShownRetry
    deadline_seconds: int | None
    delivery: Literal["AT_LEAST_ONCE", "AT_MOST_ONCE"]
    notify: list[ShownNotify]
    output: Literal["keep", "discard"]
    tags: dict[str, str]


class Job(JobDefinition):
    job_id: Id
    status: JobStatus
    pause: JobPause | None
    next_run_time: Time | None
    latest_run: ListedRun | None
    usual_duration_ms: Annotated[float, Field(ge=0)] | None
    created_at: Time
    created_by: str
    updated_at: Time
    version: Annotated[int, Field(ge=1)]


class RecentRun(ResponseModel):
    status: Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]
    scheduled_time: Time
    run_id: Id


class ListedJob(Job):
    recent: list[RecentRun] | None = None


class JobPage(ResponseModel):
    jobs: list[ListedJob]
    next_token: NextToken


class JobStatusAnswer(ResponseModel):
    job_id: Id
    status: JobStatus
    latest_run: ListedRun | None
    next_run_time: Time | None


class FieldProblem(ResponseModel):
    field: str
    message: str


class Problem(ResponseModel):
    type: Annotated[str, Field(pattern="^urn:punctual:[a-z-]+$")]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    code: Annotated[str, Field(pattern="^[A-Z_]+$")]
    request_id: Annotated[str, Field(min_length=1)]
    errors: list[FieldProblem] | None = None
    job_id: Id | None = None


class Accepted(ResponseModel):
    status: Literal[202]
    job_id: Id
    location: Address


class RefusedItem(ResponseModel):
    status: Annotated[int, Field(ge=400, le=599)]
    problem: Problem


class BatchResults(ResponseModel):
    results: list[Accepted | RefusedItem]


class Backfilled(ResponseModel):
    runs: Count


class BackfillPreview(ResponseModel):
    runs: Count
    times: list[Time]


class PreviewTime(ResponseModel):
    utc: Time
    local: Local


class Preview(ResponseModel):
    times: list[PreviewTime]
    description: str
    warnings: list[str]
    tzdata: str


class UpcomingTime(ResponseModel):
    job_id: Id
    name: str
    utc: Time
    local: Local


class UpcomingPage(ResponseModel):
    times: list[UpcomingTime]
    next_token: NextToken


class Explanation(ResponseModel):
    job_id: Id
    at: Time
    occurrence: Time | None
    outcome: Annotated[str, Field(json_schema_extra={"enum": _OUTCOMES})]
    reason: str
    run_id: Id | None
    previous: Time | None
    next: Time | None


class Lateness(ResponseModel):
    p50: float | None
    p99: float | None
    max: float | None


class MinuteCounts(ResponseModel):
    minute: Time
    started: Count
    succeeded: Count
    failed: Count
    lateness_ms: Lateness


class Queue(ResponseModel):
    depth: Count
    oldest_seconds: Annotated[float, Field(ge=0)]


class Executor(ResponseModel):
    executor_id: str
    last_heartbeat: Time | None
    running: Count


class UsedLimit(ResponseModel):
    limit: str
    allowed: Count
    used: Annotated[float, Field(ge=0)]


class Stats(ResponseModel):
    jobs: dict[JobStatus, Count]
    runs: dict[RunStatus, Count]
    last_hour: list[MinuteCounts]
    lateness_ms: Lateness
    list_lag_ms: Lateness | None
    queue: Queue
    limits: list[UsedLimit]
    executors: list[Executor]


class HealthWarning(ResponseModel):
    code: Literal["DATABASE_DAMAGED", "ROWS_UNREADABLE", "DISK_NEARLY_FULL"]
    text: str


class Probe(ResponseModel):
    status: Literal["ok", "down"]


class Login(ResponseModel):
    issuer: str
    client_id: str | None


class Health(ResponseModel):
    status: Literal["ok", "late", "down"]
    lateness_ms_p99: float | None
    watermark: Time | None
    planner_heartbeat: Time | None
    version: str
    tzdata: str
    task_types: list[str]
    guarantee: str
    margin_seconds: dict[str, Count]
    sandbox: Literal["landlock", "bubblewrap", "none"] | None
    auth: Login | None
    warnings: list[HealthWarning]


RoleWord = Literal["viewer", "operator", "editor", "admin"]
Action = Literal[
    "job.create",
    "job.update",
    "job.cancel",
    "job.pause",
    "job.resume",
    "run.order",
    "run.cancel",
    "run.retry",
    "job.backfill",
    "token.create",
    "token.revoke",
    "limits.change",
    "webhook_secret.read",
    "secret.set",
    "secret.delete",
    "artifact.create",
    "artifact.delete",
    "operation.begin",
    "operation.cancel",
    "failure.acknowledge",
]


class Limits(ResponseModel):
    calls_per_second: float | None
    burst: float | None
    jobs: Count | None
    runs_per_minute: Count | None
    concurrent_runs: Count | None
    lane_percent: Count | None
    payload_bytes: Count | None
    artifacts: Count | None
    artifact_mb: Count | None


class Whoami(ResponseModel):
    tenant: str
    name: str
    role: RoleWord
    token_id: str | None
    expires_at: Time | None
    limits: Limits


class Token(ResponseModel):
    token_id: str
    tenant: str
    name: str
    role: RoleWord
    created_at: Time
    created_by: str
    expires_at: Time | None
    last_used_at: Time | None
    revoked_at: Time | None


class NewToken(Token):
    token: Annotated[str, Field(pattern="^pnc_")]


class Secret(ResponseModel):
    name: str
    created_at: Time
    updated_at: Time
    updated_by: str


class SecretList(ResponseModel):
    secrets: list[Secret]


class TokenPage(ResponseModel):
    tokens: list[Token]
    next_token: NextToken


class WebhookSecret(ResponseModel):
    secret: Annotated[str, Field(pattern="^whsec_")]


class RenewalResult(ResponseModel):
    status: Literal["OK", "CANCEL", "LOST"]
    lease_until: Time | None = None


class RenewalResults(ResponseModel):
    results: list[RenewalResult]


class FinishResult(ResponseModel):
    status: Literal["OK", "LOST"]


class FinishResults(ResponseModel):
    results: list[FinishResult]


class UploadLink(ResponseModel):
    upload_url: str
    upload_headers: dict[str, str]
    output_upload: str


class Artifact(ResponseModel):
    artifact_id: Id
    name: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: Count
    status: Literal["PENDING", "STORED", "DELETED"]
    architecture: str | None
    created_at: Time
    created_by: str


class ArtifactUpload(Artifact):
    upload_url: str | None = None
    upload_headers: dict[str, str] | None = None


class UsingJob(ResponseModel):
    job_id: Id
    name: str


class UsedArtifact(Artifact):
    jobs: list[UsingJob]
    more_jobs: bool


class ArtifactPage(ResponseModel):
    artifacts: list[UsedArtifact]
    next_token: NextToken


class AuditEntry(ResponseModel):
    audit_id: Id
    at: Time
    caller: str
    token_id: str | None
    address: str
    request_id: str
    action: Action
    job_id: Id | None
    run_id: Id | None
    subject_token_id: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    count: Annotated[int, Field(ge=1)]


class AuditPage(ResponseModel):
    entries: list[AuditEntry]
    next_token: NextToken
