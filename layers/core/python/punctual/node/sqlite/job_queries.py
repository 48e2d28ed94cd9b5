"""The reads of the API over the node's store."""

from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log
from punctual.engine.ports.monitor import Monitor
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.run_views import WaitsForResources
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.node.sqlite.store import Store


def build_job_queries(
    store: Store,
    monitor: Monitor,
    clock: Clock,
    log: Log,
    waits_for_resources: WaitsForResources,
) -> JobQueries:
    return JobQueries(
        job_states=store.job_states,
        job_index=store.job_index,
        history=store.history,
        run_index=MergedRuns(store.job_states, store.history, waits_for_resources),
        blobs=store.blobs,
        audit_log=store.audit,
        change_feed=store.changes,
        monitor=monitor,
        clock=clock,
        log=log,
        waits_for_resources=waits_for_resources,
    )
