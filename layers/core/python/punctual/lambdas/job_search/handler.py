"""The read half of the API. It makes no decisions and writes nothing."""

from functools import partial
from typing import Any, NoReturn

from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.control.partitions import DynamoBuckets
from punctual.engine.queries.jobs import JobQueries
from punctual.lambdas import quotas
from punctual.lambdas.api_runtime import MOST, SECONDS, TASK_TYPES, about, caller_of
from punctual.lambdas.job_search.monitor import DeployedMonitor
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import of_engine
from punctual.lambdas.token_service import tokens
from punctual.web.contract import API_CALLS, READER
from punctual.web.gateway import build_resolver
from punctual.web.routes.audit_read import AuditReadRoutes
from punctual.web.routes.jobs_read import JobReadRoutes
from punctual.web.routes.openapi import OpenApiRoutes
from punctual.web.routes.runs_read import RunReadRoutes
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routes.tokens_read import TokenReadRoutes
from punctual.web.services import ReadServices


def reading(runtime: Runtime, trust: IssuerConfig | None = None) -> Any:
    """Return the resolver for reads and for calls that no route names."""
    table = runtime.settings.control_table
    planned = DynamoBuckets(runtime.dynamo, table, runtime.clock)
    tallies, beating = Counters(runtime.dynamo, table), runtime.ports.heads.beating
    monitor = DeployedMonitor(planned, tallies, beating, TASK_TYPES)
    search = JobQueries(
        heads=runtime.ports.heads,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        audit=runtime.ports.audit,
        monitor=monitor,
        clock=runtime.clock,
        log=of_engine(runtime.tell),
    )
    limited, made = quotas.api(runtime), tokens(runtime, key=_not_asked)
    reads = ReadServices(
        *(search, runtime.clock, about(trust), made),
        max_response_bytes=MOST,
        limits_of=limited.limits_of,
        lists_by_any_time=False,  # the list over all jobs is sorted by scheduled times
    )
    return build_resolver(
        (
            JobReadRoutes(reads),
            RunReadRoutes(reads),
            ScheduleRoutes(reads),
            AuditReadRoutes(reads),
            OpenApiRoutes(),
            TokenReadRoutes(reads),
        ),
        runtime.tell,
        caller_of,
        [(call.method, call.rule) for call in API_CALLS if call.function != READER],
        log_access=runtime.tell,
        time_limit=partial(runtime.deadline.within, SECONDS),
        admit=limited.admit,
    )


def _not_asked() -> NoReturn:
    raise AssertionError("nobody makes tokens who only reads")
