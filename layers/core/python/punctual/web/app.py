"""All routes together, and their way in from API Gateway."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

from punctual.web.gateway import CallerOf, Noun, gateway
from punctual.web.http.request import Reply, Request
from punctual.web.routes.audit_read import AuditReading
from punctual.web.routes.jobs_read import JobReading
from punctual.web.routes.jobs_write import JobRoutes
from punctual.web.routes.openapi import OpenApiReading
from punctual.web.routes.runs_read import RunReading
from punctual.web.routes.runs_write import RunRoutes
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routes.tokens_read import TokenReading
from punctual.web.routes.tokens_write import TokenRoutes
from punctual.web.routing import Log, Table
from punctual.web.services import Services


def routes(services: Services, log: Log) -> Table:
    """Every route, declared once."""
    table = Table(_no_gateway, log)
    if services.admit is not None:
        table.admit_by(services.admit)
    _declare(table, services)
    return table


def resolver(services: Services, log: Log, caller_of: CallerOf) -> APIGatewayHttpResolver:
    """The same routes, for events of an HTTP API; `caller_of` reads an event's authorizer."""
    return gateway(_nouns(services), log, caller_of)


def _declare(table: Table, services: Services) -> None:
    for noun in _nouns(services):
        noun.declare(table)


def _nouns(services: Services) -> tuple[Noun, ...]:
    return (
        JobReading(services),
        JobRoutes(services),
        RunReading(services),
        RunRoutes(services),
        ScheduleRoutes(services),
        OpenApiReading(),
        AuditReading(services),
        TokenReading(services),
        TokenRoutes(services),
    )


def _no_gateway(_table: Table, _perform: Callable[[Request], Reply]) -> Any:
    raise AssertionError("these routes are asked directly")
