"""Shared by both API functions: the caller of an event, and the logs and metrics of an answer."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from punctual.auth.issuer_config import IssuerConfig
from punctual.domain.tenants.roles import Role
from punctual.lambdas.telemetry import Telemetry
from punctual.settings import PRODUCT_VERSION, Settings
from punctual.web.contract import PUBLIC_PATHS
from punctual.web.http.problems import tokens_unavailable, unauthenticated
from punctual.web.http.request import Caller
from punctual.web.views.system import InstallationInfo, Login

# The task types of every stage. `container` is offered where the stage has containers.
DEPLOYED_TASK_TYPES = frozenset({"event", "http", "lambda", "script", "sqs"})
# Keys of the context that the authorizer returns.
TENANT_CONTEXT_KEY, CALLER_CONTEXT_KEY, UNSURE_CONTEXT_KEY = "tenant", "caller", "unsure"
ROLE_CONTEXT_KEY, TOKEN_ID_CONTEXT_KEY, EXPIRES_AT_CONTEXT_KEY = "role", "token_id", "expires_at"
# Seconds in which a request may start AWS calls. The last call takes up to 8 s more. So an answer
# comes within 25 s, and API Gateway waits for 30 s.
API_TIME_LIMIT_SECONDS = 15.0
MAX_LIST_RESPONSE_BYTES = (
    5_900_000  # bytes of one quoted list, so the response stays under Lambda's 6 MiB
)

_ANONYMOUS = Caller("", "")


def offered_task_types(settings: Settings) -> frozenset[str]:
    """Return the task types of this stage."""
    return DEPLOYED_TASK_TYPES | ({"container"} if settings.max_container_vcpu else set())


def installation_info(
    task_types: Iterable[str], issuer_config: IssuerConfig | None = None
) -> InstallationInfo:
    login = None if issuer_config is None else Login(issuer_config.issuer, issuer_config.client_id)
    return InstallationInfo(PRODUCT_VERSION, tuple(sorted(task_types)), login=login)


def read_caller(event: Mapping[str, Any], path: str) -> Caller:
    """Return the caller that the authorizer found. Without one only public paths are allowed."""
    if path.rstrip("/") in PUBLIC_PATHS:
        return _ANONYMOUS
    authorizer_context = _authorizer_context(event)
    tenant, name, role = (
        authorizer_context.get(TENANT_CONTEXT_KEY),
        authorizer_context.get(CALLER_CONTEXT_KEY),
        Role.from_label(str(authorizer_context.get(ROLE_CONTEXT_KEY))),
    )
    if isinstance(tenant, str) and isinstance(name, str) and tenant and name and role:
        expires_at = authorizer_context.get(EXPIRES_AT_CONTEXT_KEY)
        return Caller(
            tenant,
            name,
            role,
            authorizer_context.get(TOKEN_ID_CONTEXT_KEY) or "",
            _source_address(event),
            datetime.fromisoformat(expires_at) if expires_at else None,
        )
    raise tokens_unavailable() if authorizer_context.get(UNSURE_CONTEXT_KEY) else unauthenticated()


def respond(app: Any, log: Telemetry, event: dict[str, Any], context: Any) -> Any:
    """Return the response of the routes to one event of API Gateway."""
    with log.invocation():
        return app.resolve(with_root_path(event), context)


def with_root_path(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event with a path that starts at the root.

    A custom domain may leave out the stage from its paths.
    """
    stage = event["requestContext"]["stage"]
    path = event["rawPath"]
    if stage == "$default" or path == f"/{stage}" or path.startswith(f"/{stage}/"):
        return event
    return {**event, "requestContext": {**event["requestContext"], "stage": "$default"}}


def _source_address(event: Mapping[str, Any]) -> str:
    return str(event["requestContext"].get("http", {}).get("sourceIp", ""))


def _authorizer_context(event: Mapping[str, Any]) -> Mapping[str, Any]:
    authorizer = event["requestContext"].get("authorizer") or {}
    return authorizer.get("lambda") or {}
