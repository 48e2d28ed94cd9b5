"""What the calls about who calls answer: identities, tokens and the audit."""

from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.web.openapi.answers import Count, Id, NextToken, ResponseModel, Time

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
]


class Limits(ResponseModel):
    calls_per_second: float | None
    burst: float | None
    jobs: Count | None
    runs_per_minute: Count | None
    concurrent_runs: Count | None
    lane_percent: Count | None
    payload_bytes: Count | None


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


class TokenPage(ResponseModel):
    tokens: list[Token]
    next_token: NextToken


class WebhookSecret(ResponseModel):
    secret: Annotated[str, Field(pattern="^whsec_")]


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
