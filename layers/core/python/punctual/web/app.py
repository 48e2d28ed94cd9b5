"""All routes of the API in one table."""

from punctual.engine.ports.log import Log
from punctual.web.gateway import RouteGroup
from punctual.web.routes.artifacts_read import ArtifactReadRoutes
from punctual.web.routes.artifacts_write import ArtifactWriteRoutes
from punctual.web.routes.audit_read import AuditReadRoutes
from punctual.web.routes.changes_read import ChangeRoutes
from punctual.web.routes.claims import ClaimRoutes
from punctual.web.routes.failures_read import FailureReadRoutes
from punctual.web.routes.failures_write import FailureWriteRoutes
from punctual.web.routes.jobs_read import JobReadRoutes
from punctual.web.routes.jobs_write import JobWriteRoutes
from punctual.web.routes.openapi import OpenApiRoutes
from punctual.web.routes.operations_read import OperationReadRoutes
from punctual.web.routes.operations_write import OperationWriteRoutes
from punctual.web.routes.overview import OverviewRoutes
from punctual.web.routes.runs_read import RunReadRoutes
from punctual.web.routes.runs_write import RunWriteRoutes
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routes.secrets import SecretRoutes
from punctual.web.routes.tokens_read import TokenReadRoutes
from punctual.web.routes.tokens_write import TokenWriteRoutes
from punctual.web.routing import RouteTable
from punctual.web.services import Services


def build_routes(services: Services, log: Log) -> RouteTable:
    """Return a table with every route of the API, for a server that calls it directly."""
    table = RouteTable(log, check_tenant=services.check_tenant)
    for group in route_groups(services):
        group.declare(table)
    return table


def route_groups(services: Services) -> tuple[RouteGroup, ...]:
    return (
        JobReadRoutes(services),
        JobWriteRoutes(services),
        RunReadRoutes(services),
        ChangeRoutes(services),
        RunWriteRoutes(services),
        ScheduleRoutes(services),
        OpenApiRoutes(),
        AuditReadRoutes(services),
        TokenReadRoutes(services),
        TokenWriteRoutes(services),
        ClaimRoutes(services.claims),
        SecretRoutes(services),
        ArtifactReadRoutes(services),
        ArtifactWriteRoutes(services),
        FailureReadRoutes(services),
        OverviewRoutes(services),
        FailureWriteRoutes(services),
        OperationReadRoutes(services),
        OperationWriteRoutes(services),
    )
