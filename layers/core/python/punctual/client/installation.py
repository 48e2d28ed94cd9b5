"""Answers about tokens, the audit and the state of the installation."""

from typing import Any

import msgspec

from punctual.client.model import AwareDatetime, Model


class Lateness(Model, frozen=True, kw_only=True):
    """Lateness in milliseconds, or None if no run has started."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class Minute(Model, frozen=True, kw_only=True):
    minute: AwareDatetime
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    lateness_ms: Lateness | None = None


class Queue(Model, frozen=True, kw_only=True):
    depth: int | None = None
    oldest_seconds: float | None = None


class Executor(Model, frozen=True, kw_only=True):
    executor_id: str
    last_heartbeat: AwareDatetime | None = None
    running: int | None = None


class UsedLimit(Model, frozen=True, kw_only=True):
    """A limit of the tenant, or one that all runs share, and how much of it is used now."""

    limit: str
    allowed: int | None = None
    used: int | float | None = None  # processors have fractions


class Stats(Model, frozen=True, kw_only=True):
    jobs: dict[str, int] = msgspec.field(default_factory=dict)
    runs: dict[str, int] = msgspec.field(default_factory=dict)
    last_hour: tuple[Minute, ...] = ()
    lateness_ms: Lateness | None = None
    list_lag_ms: Lateness | None = None
    queue: Queue | None = None
    limits: tuple[UsedLimit, ...] = ()
    executors: tuple[Executor, ...] = ()


class HealthWarning(Model, frozen=True, kw_only=True):
    code: str
    text: str


class Login(Model, frozen=True, kw_only=True):
    """The OIDC issuer for the login of people, and its client id."""

    issuer: str
    client_id: str | None = None


class Health(Model, frozen=True, kw_only=True):
    status: str
    lateness_ms_p99: float | None = None
    watermark: AwareDatetime | None = None
    planner_heartbeat: AwareDatetime | None = None
    version: str | None = None
    tzdata: str | None = None
    task_types: tuple[str, ...] = ()
    guarantee: str | None = None
    margin_seconds: dict[str, float] = msgspec.field(default_factory=dict)  # by task type
    sandbox: str | None = None
    auth: Login | None = None
    warnings: tuple[HealthWarning, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class Probe(Model, frozen=True, kw_only=True):
    """The answer to a liveness or readiness check of a load balancer."""

    status: str

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class Limits(Model, frozen=True, kw_only=True):
    """The limits of a tenant. None means no limit."""

    calls_per_second: float | None = None
    burst: float | None = None
    jobs: int | None = None
    runs_per_minute: float | None = None
    concurrent_runs: int | None = None
    lane_percent: int | None = None
    payload_bytes: int | None = None
    artifacts: int | None = None
    artifact_mb: int | None = None


class Identity(Model, frozen=True, kw_only=True):
    """The tenant and the role of the caller's token."""

    tenant: str
    name: str
    role: str
    token_id: str | None = None
    expires_at: AwareDatetime | None = None
    limits: Limits | None = None


class Token(Model, frozen=True, kw_only=True):
    token_id: str
    tenant: str
    name: str
    role: str
    created_at: AwareDatetime | None = None
    created_by: str | None = None
    expires_at: AwareDatetime | None = None
    last_used_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None


class NewToken(Token, frozen=True, kw_only=True):
    """A new token with its secret. The server shows the secret only in this answer."""

    token: str


class Secret(Model, frozen=True, kw_only=True):
    """A secret that tasks may name. No answer of the server holds its value."""

    name: str
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    updated_by: str | None = None


class UsingJob(Model, frozen=True, kw_only=True):
    """A job that uses an artifact."""

    job_id: str
    name: str


class Artifact(Model, frozen=True, kw_only=True):
    """A file for script jobs.

    `jobs` names up to 100 of the jobs that use it, and in lists up to 5. With `more_jobs` there may
    be others. Answers to an upload or a delete name none.
    """

    artifact_id: str
    name: str
    sha256: str
    size: int
    status: str
    architecture: str | None = None
    created_at: AwareDatetime | None = None
    created_by: str | None = None
    jobs: tuple[UsingJob, ...] = ()
    more_jobs: bool = False
    upload_url: str | None = None
    upload_headers: dict[str, str] = msgspec.field(default_factory=dict)


class WebhookSecret(Model, frozen=True, kw_only=True):
    secret: str


class AuditEntry(Model, frozen=True, kw_only=True):
    audit_id: str
    at: AwareDatetime
    caller: str
    action: str
    token_id: str | None = None
    address: str | None = None
    request_id: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    subject_token_id: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    count: int = 1
