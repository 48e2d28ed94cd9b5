"""The reading half of the API: nothing here decides, writes or checks a definition."""

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
from punctual.web.contract import CALLS, READER
from punctual.web.gateway import gateway
from punctual.web.routes.audit_read import AuditReading
from punctual.web.routes.jobs_read import JobReading
from punctual.web.routes.openapi import OpenApiReading
from punctual.web.routes.runs_read import RunReading
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routes.tokens_read import TokenReading
from punctual.web.services import Reads


def reading(runtime: Runtime, trust: IssuerConfig | None = None) -> Any:
    """A resolver for the calls that read, and for whatever no route names."""
    table = runtime.settings.control_table
    planned = DynamoBuckets(runtime.dynamo, table, runtime.clock)
    tallies, beating = Counters(runtime.dynamo, table), runtime.ports.heads.beating
    monitor = DeployedMonitor(planned, tallies, beating, TASK_TYPES)
    search = JobQueries(runtime.ports, runtime.clock, monitor, of_engine(runtime.tell))
    limited, made = quotas.api(runtime), tokens(runtime, key=_not_asked)
    reads = Reads(
        *(search, runtime.clock, about(trust), made),
        most=MOST,
        limits_of=limited.limits_of,
        all_by_any_time=False,  # the list over all jobs is filed by scheduled times
    )
    return gateway(
        (
            JobReading(reads),
            RunReading(reads),
            ScheduleRoutes(reads),
            AuditReading(reads),
            OpenApiReading(),
            TokenReading(reads),
        ),
        runtime.tell,
        caller_of,
        [(call.method, call.rule) for call in CALLS if call.function != READER],
        access=runtime.tell,
        bounded=partial(runtime.deadline.within, SECONDS),
        admit=limited.admit,
    )


def _not_asked() -> NoReturn:
    raise AssertionError("nobody makes tokens who only reads")
