"""The ports of one store, and the parts of the engine that tests build over them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_type_hints

from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.commands.artifacts import Artifacts
from punctual.engine.commands.job_names import JobNames
from punctual.engine.commands.jobs import Jobs
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.late_timers import LateTimerSweeper
from punctual.engine.dispatch.reconciler import Reconciler
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.audit_log import AuditLog
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.feed import Feed
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.job_index import JobIndex
from punctual.engine.ports.lists.job_names import NameRows
from punctual.engine.ports.lists.operations import Operations
from punctual.engine.ports.lists.run_index import RunIndex
from punctual.engine.ports.log import Log, no_log
from punctual.engine.ports.monitor import Monitor
from punctual.engine.ports.notifications import Notifications
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.receipts import Receipts
from punctual.engine.ports.run_queue import RunQueue
from punctual.engine.ports.tenants.artifact_rows import ArtifactRows
from punctual.engine.ports.timers import Timers
from punctual.engine.ports.wakeups import WakeUps
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.recent_runs import ListedRuns
from punctual.engine.queries.runs.merged_runs import MergedRuns
from punctual.node.sqlite.store import Store

if TYPE_CHECKING:  # most tests over these ports need no AWS client
    from punctual.aws.ports import AwsPorts


@dataclass(frozen=True)
class Ports:
    """All ports of one store. Only tests hold them together."""

    job_states: JobStates
    job_index: JobIndex
    timers: Timers
    run_queue: RunQueue
    notifications: Notifications
    history: History
    run_index: RunIndex
    blobs: Blobs
    partitions: Partitions
    wakeups: WakeUps
    receipts: Receipts
    feed: Feed
    audit_log: AuditLog
    artifacts: ArtifactRows
    job_names: NameRows
    operations: Operations


def port_methods() -> dict[str, frozenset[str]]:
    """Return the names of the methods of each port. Faults are planned by these names."""
    return {
        port: frozenset(name for name in dir(protocol) if not name.startswith("_"))
        for port, protocol in get_type_hints(Ports).items()
    }


def store_ports(store: Store, messages: RunQueue, wake: WakeUps) -> Ports:
    """Return the ports of a node."""
    return Ports(
        job_states=store.job_states,
        job_index=store.job_index,
        timers=store.timers,
        run_queue=messages,
        notifications=store.notifications,
        history=store.history,
        run_index=MergedRuns(store.job_states, store.history),
        blobs=store.blobs,
        partitions=store.partitions,
        wakeups=wake,
        receipts=store.receipts,
        feed=store.feed,
        audit_log=store.audit,
        artifacts=store.artifacts,
        job_names=store.job_names,
        operations=store.operations,
    )


def a_change_applier(
    ports: "Ports | AwsPorts",
    clock: Clock,
    monotonic: Callable[[], float],
    log: Log = no_log,
    unit: AbstractContextManager[None] | None = None,
) -> ChangeApplier:
    return ChangeApplier(
        job_states=ports.job_states,
        timers=ports.timers,
        partitions=ports.partitions,
        history=ports.history,
        run_queue=ports.run_queue,
        notifications=ports.notifications,
        wakeups=ports.wakeups,
        clock=clock,
        steady=monotonic,
        log=log,
        transaction=unit,
    )


def job_queries(
    ports: "Ports | AwsPorts",
    clock: Clock,
    monitor: Monitor,
    log: Log = no_log,
    listed_runs: ListedRuns | None = None,
) -> JobQueries:
    return JobQueries(
        job_states=ports.job_states,
        job_index=ports.job_index,
        history=ports.history,
        run_index=ports.run_index,
        blobs=ports.blobs,
        audit_log=ports.audit_log,
        monitor=monitor,
        clock=clock,
        log=log,
        listed_runs=listed_runs,
    )


def job_commands(
    ports: "Ports | AwsPorts",
    steps: ChangeApplier,
    search: JobQueries,
    clock: Clock,
    new_id: NewId,
    artifacts: Artifacts | None = None,
) -> Jobs:
    return Jobs(
        job_states=ports.job_states,
        history=ports.history,
        blobs=ports.blobs,
        receipts=ports.receipts,
        wakeups=ports.wakeups,
        applier=steps,
        queries=search,
        clock=clock,
        new_id=new_id,
        names=job_names(ports, new_id),
        artifacts=artifacts,
    )


def job_names(ports: "Ports | AwsPorts", new_id: NewId) -> JobNames:
    return JobNames(ports.job_names, ports.job_states, new_id)


def artifact_commands(ports: "Ports | AwsPorts", clock: Clock, new_id: NewId) -> Artifacts:
    queries = ArtifactQueries(ports.artifacts, ports.blobs, ports.job_states)
    return Artifacts(ports.artifacts, ports.blobs, queries, ports.audit_log, clock, new_id)


def an_executor(
    ports: "Ports | AwsPorts",
    steps: ChangeApplier,
    new_id: NewId,
    executor_id: str,
    hands_over_scripts: bool = False,
) -> Executor:
    return Executor(
        job_states=ports.job_states,
        blobs=ports.blobs,
        wakeups=ports.wakeups,
        applier=steps,
        new_id=new_id,
        executor_id=executor_id,
        hands_over_scripts=hands_over_scripts,
    )


def a_reconciler(
    ports: Ports, steps: ChangeApplier, looker: Evaluator, new_id: NewId
) -> Reconciler:
    return Reconciler(
        job_states=ports.job_states,
        timers=ports.timers,
        partitions=ports.partitions,
        wakeups=ports.wakeups,
        applier=steps,
        evaluator=looker,
        names=job_names(ports, new_id),
    )


def a_sweeper(ports: Ports, looker: Evaluator) -> LateTimerSweeper:
    return LateTimerSweeper(ports.timers, ports.partitions, looker)
