"""The commands on jobs, as the functions that change jobs build them."""

from datetime import datetime
from typing import NoReturn

from punctual.engine.commands.artifacts import Artifacts
from punctual.engine.commands.job_names import JobNames
from punctual.engine.commands.jobs import Jobs
from punctual.engine.ports.quotas import Quotas
from punctual.engine.queries.jobs import JobQueries
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import engine_log


def build_queries(runtime: Runtime) -> JobQueries:
    """Return the queries of a function that changes jobs. It reads no statistics."""
    return JobQueries(
        job_states=runtime.ports.job_states,
        job_index=runtime.ports.job_index,
        history=runtime.ports.history,
        run_index=runtime.ports.run_index,
        blobs=runtime.ports.blobs,
        audit_log=runtime.ports.audit_log,
        monitor=_NoMonitor(),
        clock=runtime.clock,
        log=engine_log(runtime.log),
    )


def build_jobs(
    runtime: Runtime, queries: JobQueries, quotas: Quotas, artifacts: Artifacts | None = None
) -> Jobs:
    return Jobs(
        job_states=runtime.ports.job_states,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        receipts=runtime.ports.receipts,
        wakeups=runtime.ports.wakeups,
        applier=runtime.applier,
        queries=queries,
        clock=runtime.clock,
        new_id=runtime.new_id,
        names=JobNames(runtime.ports.job_names, runtime.ports.job_states, runtime.new_id),
        quotas=quotas,
        artifacts=artifacts,
    )


class _NoMonitor:
    """A monitor for writes, which never read statistics or health."""

    def stats(self, tenant: str, now: datetime) -> NoReturn:
        raise AssertionError(f"this function has no stats; asked for {tenant} at {now}")

    def health(self, now: datetime) -> NoReturn:
        raise AssertionError(f"this function has no health; asked at {now}")
