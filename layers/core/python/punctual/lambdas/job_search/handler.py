"""The read half of the API. It makes no decisions and writes nothing."""

from functools import partial
from typing import Any, NoReturn

from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.control.partitions import DynamoPartitions
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.operations import OperationQueries
from punctual.engine.queries.overview.failures import FailureQueries
from punctual.lambdas import quotas
from punctual.lambdas.api_runtime import (
    API_TIME_LIMIT_SECONDS,
    MAX_LIST_RESPONSE_BYTES,
    installation_info,
    offered_task_types,
    read_caller,
)
from punctual.lambdas.job_search.monitor import DeployedMonitor
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import engine_log
from punctual.lambdas.token_service import build_token_commands
from punctual.web.contract import API_CALLS, READ_FUNCTION
from punctual.web.gateway import RouteGroup, build_resolver
from punctual.web.routes.artifacts_read import ArtifactReadRoutes
from punctual.web.routes.audit_read import AuditReadRoutes
from punctual.web.routes.changes_read import ChangeRoutes
from punctual.web.routes.failures_read import FailureReadRoutes
from punctual.web.routes.jobs_read import JobReadRoutes
from punctual.web.routes.openapi import OpenApiRoutes
from punctual.web.routes.operations_read import OperationReadRoutes
from punctual.web.routes.overview import OverviewRoutes
from punctual.web.routes.runs_read import RunReadRoutes
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routes.tokens_read import TokenReadRoutes
from punctual.web.services import ReadServices


def build_read_api(runtime: Runtime, issuer_config: IssuerConfig | None = None) -> Any:
    """Return the resolver for reads and for calls that no route names."""
    stage_quotas = quotas.build_api_quotas(runtime)
    queries = _build_queries(runtime, _build_monitor(runtime, stage_quotas.limits_of))
    task_types = offered_task_types(runtime.settings)
    token_commands = build_token_commands(runtime, key=_no_token_key)
    installation = installation_info(task_types, issuer_config)
    services = ReadServices(
        *(queries, runtime.clock, installation, token_commands),
        max_response_bytes=MAX_LIST_RESPONSE_BYTES,
        limits_of=stage_quotas.limits_of,
        failure_queries=FailureQueries(runtime.ports.failures, runtime.ports.job_states),
        operation_queries=OperationQueries(runtime.ports.operations),
        artifact_queries=ArtifactQueries(
            runtime.ports.artifacts, runtime.ports.blobs, runtime.ports.job_states
        ),
    )
    return build_resolver(
        _routes(services),
        runtime.log,
        read_caller,
        [(call.method, call.rule) for call in API_CALLS if call.function != READ_FUNCTION],
        log_access=runtime.log,
        time_limit=partial(runtime.deadline.within, API_TIME_LIMIT_SECONDS),
        check_tenant=stage_quotas.admit,
    )


def _routes(services: ReadServices) -> tuple[RouteGroup, ...]:
    return (
        JobReadRoutes(services),
        RunReadRoutes(services),
        ChangeRoutes(services),
        ScheduleRoutes(services),
        AuditReadRoutes(services),
        OpenApiRoutes(),
        TokenReadRoutes(services),
        ArtifactReadRoutes(services),
        FailureReadRoutes(services),
        OverviewRoutes(services),
        OperationReadRoutes(services),
    )


def _build_monitor(runtime: Runtime, limits_of: LimitsOf) -> DeployedMonitor:
    table = runtime.settings.control_table
    return DeployedMonitor(
        DynamoPartitions(runtime.dynamo, table, runtime.clock),
        Counters(runtime.dynamo, table, runtime.clock),
        quotas.build_job_counts(runtime),
        runtime.ports.job_states.load_held_states,
        offered_task_types(runtime.settings),
        shared_limits=quotas.build_shared_limits(runtime),
        used_limits=quotas.build_used_limits(runtime, limits_of),
    )


def _build_queries(runtime: Runtime, monitor: DeployedMonitor) -> JobQueries:
    change_feed = DynamoChangeFeed(
        runtime.dynamo,
        runtime.settings.lists_table,
        runtime.settings.feed_slots,
        runtime.clock,
        monitor.has_live_runs,
    )
    return JobQueries(
        job_states=runtime.ports.job_states,
        job_index=runtime.ports.job_index,
        history=runtime.ports.history,
        run_index=runtime.ports.run_index,
        blobs=runtime.ports.blobs,
        audit_log=runtime.ports.audit_log,
        change_feed=change_feed,
        monitor=monitor,
        clock=runtime.clock,
        listed_runs=runtime.ports.listed_jobs,
        log=engine_log(runtime.log),
    )


def _no_token_key() -> NoReturn:
    raise AssertionError("job_search creates no tokens")
