"""The reading half of the API: nothing here decides, writes or checks a definition."""

from functools import partial
from typing import Any, NoReturn

from punctual.access.trust import Trust
from punctual.aws.control import DynamoBuckets
from punctual.aws.tallies import Tallies
from punctual.engine.search import Search
from punctual.serverless import limiting
from punctual.serverless.api import MOST, SECONDS, TASK_TYPES, about, caller_of
from punctual.serverless.api_tokens import tokens
from punctual.serverless.monitoring import DeployedMonitor
from punctual.serverless.runtime import Runtime
from punctual.serverless.telling import of_engine
from punctual.web.contract import CALLS, READER
from punctual.web.gateway import gateway
from punctual.web.reading_audit import AuditReading
from punctual.web.reading_jobs import JobReading
from punctual.web.reading_runs import RunReading
from punctual.web.reading_tokens import TokenReading
from punctual.web.routes_openapi import OpenApiReading
from punctual.web.routes_schedules import ScheduleRoutes
from punctual.web.services import Reads


def reading(runtime: Runtime, trust: Trust | None = None) -> Any:
    """A resolver for the calls that read, and for whatever no route names."""
    table = runtime.settings.control_table
    planned = DynamoBuckets(runtime.dynamo, table, runtime.clock)
    tallies, beating = Tallies(runtime.dynamo, table), runtime.ports.heads.beating
    monitor = DeployedMonitor(planned, tallies, beating, TASK_TYPES)
    search = Search(runtime.ports, runtime.clock, monitor, of_engine(runtime.tell))
    limited, made = limiting.api(runtime), tokens(runtime, key=_not_asked)
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
