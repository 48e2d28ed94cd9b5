"""The body that makes a token: every wrong field at once."""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import is_tenant
from punctual.web.http.json_body import CONTROL, Parsed
from punctual.web.models.bodies import Findings
from punctual.web.models.schedule import Strict

MAX_NAME = 128
_TENANT = (
    "must be 1 to 64 letters, digits, dots, dashes or underscores, beginning with a letter or digit"
)


class TokenFields(Strict):
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    role: Literal["viewer", "operator", "editor", "admin"]
    expires_at: str | None = None
    tenant: str | None = None


class NewToken(NamedTuple):
    name: str
    role: Role
    expires_at: datetime | None
    tenant: str | None  # the caller's own where none is named


def new_token(parsed: Parsed, now: datetime) -> NewToken:
    findings = Findings()
    fields = findings.right_part(TokenFields, parsed)
    name = fields.get("name") or ""
    if CONTROL.search(name):
        findings.add("name", "must not hold control characters")
    expires_at = findings.moment(fields, "expires_at")
    if expires_at is not None and expires_at <= now:
        findings.add("expires_at", "must lie in the future")
    tenant = fields.get("tenant")
    if tenant is not None and not is_tenant(tenant):
        findings.add("tenant", _TENANT)
    findings.finish()
    return NewToken(name, Role[fields["role"].upper()], expires_at, tenant)
