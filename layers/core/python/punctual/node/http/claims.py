"""The calls by claim on the node: external executors share the engine with its workers."""

from punctual.engine.execution.claims import ClaimReader, Claims
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log
from punctual.node.sqlite.store import Store


def node_claims(
    store: Store, executor: Executor, reader: ClaimReader, clock: Clock, log: Log
) -> Claims:
    return Claims(
        executor=executor,
        job_states=store.job_states,
        history=store.history,
        blobs=store.blobs,
        reader=reader,
        clock=clock,
        log=log,
    )
