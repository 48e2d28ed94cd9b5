"""Carries out operations between the steps of the node, a slice at a time."""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from operator import itemgetter

from punctual.domain.errors import Unavailable
from punctual.domain.operations.operation import MAX_SLICE_ITEMS
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.clock import ClockReading
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.commands.job_names import JobNames
from punctual.engine.commands.jobs import Jobs
from punctual.engine.operations.actions import OperationActions
from punctual.engine.operations.commands import OperationCommands
from punctual.engine.operations.matching import Matcher
from punctual.engine.operations.runner import OperationRunner, SliceResult
from punctual.engine.operations.slice_tries import MIN_RETRY_SECONDS, retry_delay_seconds
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.lists.operations import OperationKey, Operations
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import Quotas
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.node.sqlite.store import Store

OpenTransaction = Callable[[], AbstractContextManager[None]]

# Items of one slice. Due work waits for it: about ten milliseconds.
SLICE_ITEMS = MAX_SLICE_ITEMS
SLICE_PAUSE_SECONDS = 0.001
MAX_KNOWN_OPERATIONS = 10_000  # a tenant has at most 20 at the same time


class BulkOperations:
    """Runs the running operations, a slice at a time, each at a time of its own.

    A restart continues where they stopped. An operation that waits, or fails, delays no other one.
    """

    def __init__(
        self,
        operations: Operations,
        runner: OperationRunner,
        open_transaction: OpenTransaction,
        log: Log,
        steady: float,
    ) -> None:
        self._operations = operations
        self._runner = runner
        self._open_transaction = open_transaction
        self._log = log
        self._next_steady_by_key: dict[OperationKey, float] = {}
        self._failed_tries: Counter[OperationKey] = Counter()
        self._is_stale = True  # operations of the store may be missing
        self._stale_steady = steady

    @property
    def next_step_steady(self) -> float:
        if self._is_stale:
            return self._stale_steady
        return min(self._next_steady_by_key.values(), default=math.inf)

    def notify_created(self, _key: OperationKey) -> None:
        """Look for new operations in the next step."""
        self._is_stale, self._stale_steady = True, 0.0

    def run_due(self, reading: ClockReading) -> None:
        """Run one slice of the operation that has waited longest, if one is due."""
        steady = reading.steady
        if steady < self.next_step_steady:
            return
        key: OperationKey | None = None
        try:
            if self._is_stale:
                self._find_running(steady)
            due = min(self._next_steady_by_key.items(), key=itemgetter(1), default=None)
            if due is None or due[1] > steady:
                return
            key = due[0]
            wait_seconds = self._run_slice(key, reading)
        except Unavailable as error:  # the rows are unchanged, and the slice is repeated
            self._log("operation_waits", error=error.message)
            self._postpone(key, steady)
            return
        if key in self._next_steady_by_key:
            self._next_steady_by_key[key] = steady + max(SLICE_PAUSE_SECONDS, wait_seconds)

    def _find_running(self, steady: float) -> None:
        for key in self._operations.running(MAX_KNOWN_OPERATIONS):
            self._next_steady_by_key.setdefault(key, steady)
        self._is_stale = False

    def _postpone(self, key: OperationKey | None, steady: float) -> None:
        """Repeat later what failed. Each failure of an operation doubles its delay."""
        if key is None:
            self._stale_steady = steady + MIN_RETRY_SECONDS
            return
        self._failed_tries[key] += 1
        delay = retry_delay_seconds(self._failed_tries[key])
        self._next_steady_by_key[key] = steady + delay

    def _run_slice(self, key: OperationKey, reading: ClockReading) -> float:
        """Run a slice in one transaction. Return after how many seconds the next one may begin."""
        with self._open_transaction():
            failed_tries = self._failed_tries[key]
            result = self._runner.run_next(key, SLICE_ITEMS, failed_tries, reading.wall)
        del self._failed_tries[key]
        if not result.has_more:
            del self._next_steady_by_key[key]
            self._log_end(result)
        return result.wait_seconds

    def _log_end(self, result: SliceResult) -> None:
        operation = result.operation
        if operation is not None:
            self._log(
                "operation_ended",
                operation_id=operation.operation_id,
                action=operation.action.value,
                status=operation.status.value,
                done=operation.done,
                failed=operation.failed,
            )


def build_bulk_operations(
    store: Store,
    jobs: Jobs,
    queries: JobQueries,
    applier: ChangeApplier,
    quotas: Quotas,
    names: JobNames,
    open_transaction: OpenTransaction,
    clock: Clock,
    new_id: NewId,
    log: Log,
    steady: float,
) -> tuple[BulkOperations, OperationCommands]:
    """Return the driver of a node's operations, and the commands that begin and cancel them."""
    definitions = Definitions(store.job_states, store.blobs)
    actions = OperationActions(jobs, applier, store.job_states, definitions, names, quotas)
    runner = OperationRunner(store.operations, actions)
    driver = BulkOperations(store.operations, runner, open_transaction, log, steady)
    matcher = Matcher(store.job_index, store.job_states, store.history, queries)
    commands = OperationCommands(
        store.operations,
        matcher,
        JobLabels(store.job_states),
        IdempotencyKeys(store.receipts),
        store.audit,
        clock,
        new_id,
        driver.notify_created,
    )
    return driver, commands
