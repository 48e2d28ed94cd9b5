"""Shared by both API functions: the caller of an event, and the logs and metrics of an answer."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from punctual.auth.issuer_config import IssuerConfig
from punctual.domain.tenants.roles import Role
from punctual.lambdas.telemetry import Telemetry
from punctual.settings import VERSION
from punctual.web.contract import PUBLIC_PATHS
from punctual.web.http.challenge import tokens_unavailable, unauthenticated
from punctual.web.http.request import Caller
from punctual.web.views.system import InstallationInfo, Login

TASK_TYPES = frozenset({"event", "http", "lambda", "sqs"})
# Keys of the context that the authorizer returns.
TENANT, CALLER, UNSURE = "tenant", "caller", "unsure"
ROLE, TOKEN_ID, EXPIRES_AT = "role", "token_id", "expires_at"
# Seconds in which a request may start AWS calls. The last call takes up to 8 s more. So an answer
# comes within 25 s, and API Gateway waits for 30 s.
SECONDS = 15.0
MOST = 5_900_000  # bytes of one quoted list, so the response stays under Lambda's 6 MiB

_NOBODY = Caller("", "")


def about(trust: IssuerConfig | None = None) -> InstallationInfo:
    login = None if trust is None else Login(trust.issuer, trust.client_id)
    return InstallationInfo(VERSION, tuple(sorted(TASK_TYPES)), login=login)


def caller_of(event: Mapping[str, Any], path: str) -> Caller:
    """Return the caller that the authorizer found. Without one only public paths are allowed."""
    if path.rstrip("/") in PUBLIC_PATHS:
        return _NOBODY
    said = _said(event)
    tenant, name, role = said.get(TENANT), said.get(CALLER), Role.of(str(said.get(ROLE)))
    if isinstance(tenant, str) and isinstance(name, str) and tenant and name and role:
        expires_at = said.get(EXPIRES_AT)
        return Caller(
            tenant,
            name,
            role,
            said.get(TOKEN_ID) or "",
            _address(event),
            datetime.fromisoformat(expires_at) if expires_at else None,
        )
    raise tokens_unavailable() if said.get(UNSURE) else unauthenticated()


def answer(app: Any, tell: Telemetry, event: dict[str, Any], context: Any) -> Any:
    """Return the response of the routes to one event of API Gateway."""
    with tell.told():
        return app.resolve(at_root(event), context)


def at_root(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event with a path that starts at the root.

    A custom domain may leave out the stage from its paths.
    """
    stage = event["requestContext"]["stage"]
    path = event["rawPath"]
    if stage == "$default" or path == f"/{stage}" or path.startswith(f"/{stage}/"):
        return event
    return {**event, "requestContext": {**event["requestContext"], "stage": "$default"}}


def _address(event: Mapping[str, Any]) -> str:
    return str(event["requestContext"].get("http", {}).get("sourceIp", ""))


def _said(event: Mapping[str, Any]) -> Mapping[str, Any]:
    authorizer = event["requestContext"].get("authorizer") or {}
    return authorizer.get("lambda") or {}
