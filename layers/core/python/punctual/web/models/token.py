"""The body of POST /tokens, and its checks."""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import is_valid_tenant
from punctual.web.http.json_body import CONTROL_CHARACTER, JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.schedule import StrictModel

MAX_TOKEN_NAME_CHARACTERS = 128
_TENANT_MESSAGE = (
    "must be 1 to 64 letters, digits, dots, dashes or underscores, beginning with a letter or digit"
)


class TokenFields(StrictModel):
    name: Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_NAME_CHARACTERS)]
    role: Literal["viewer", "operator", "editor", "admin"]
    expires_at: str | None = None
    tenant: str | None = None


class NewToken(NamedTuple):
    name: str
    role: Role
    expires_at: datetime | None
    tenant: str | None  # None means the caller's tenant


def parse_new_token(body: JsonBody, now: datetime) -> NewToken:
    reader = BodyReader()
    fields = reader.validated(TokenFields, body)
    name = fields.get("name") or ""
    if CONTROL_CHARACTER.search(name):
        reader.add_error("name", "must not hold control characters")
    expires_at = reader.time(fields, "expires_at")
    if expires_at is not None and expires_at <= now:
        reader.add_error("expires_at", "must lie in the future")
    tenant = fields.get("tenant")
    if tenant is not None and not is_valid_tenant(tenant):
        reader.add_error("tenant", _TENANT_MESSAGE)
    reader.finish()
    return NewToken(name, Role[fields["role"].upper()], expires_at, tenant)
