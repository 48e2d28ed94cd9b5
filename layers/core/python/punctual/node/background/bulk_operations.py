"""Carries out operations between the steps of the node, a slice at a time."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from punctual.domain.errors import Unavailable
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.clock import ClockReading
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.commands.jobs import Jobs
from punctual.engine.operations.actions import OperationActions
from punctual.engine.operations.commands import OperationCommands
from punctual.engine.operations.matching import Matcher
from punctual.engine.operations.runner import OperationRunner, SliceResult
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.lists.operations import OperationKey, Operations
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import Quotas
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.node.sqlite.store import Store

OpenTransaction = Callable[[], AbstractContextManager[None]]

# Items of one slice. Due work waits for it: about ten milliseconds.
SLICE_ITEMS = 100
SLICE_PAUSE_SECONDS = 0.001
OPERATION_RETRY_SECONDS = 1.0  # after a failed slice
MAX_KNOWN_OPERATIONS = 100
IDLE_SECONDS = 86_400.0


class BulkOperations:
    """Runs a slice of each running operation in turn. A restart continues where it stopped."""

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
        self._waiting: deque[OperationKey] = deque()
        self._is_stale = True  # the queue may lack operations of the store
        self._next_steady = steady

    @property
    def next_step_steady(self) -> float:
        return self._next_steady

    def notify_created(self, _key: OperationKey) -> None:
        """Look for new operations in the next step."""
        self._is_stale = True
        self._next_steady = 0.0

    def run_due(self, reading: ClockReading) -> None:
        """Run one slice of the next operation, if its time has come."""
        if reading.steady < self._next_steady:
            return
        try:
            wait_seconds = self._run_slice(reading)
        except Unavailable as error:  # the rows are unchanged, and the slice is repeated
            self._log("operation_waits", error=error.message)
            self._is_stale, wait_seconds = True, OPERATION_RETRY_SECONDS
        self._next_steady = reading.steady + wait_seconds

    def _run_slice(self, reading: ClockReading) -> float:
        """Run a slice in one transaction. Return after how many seconds the next one may begin."""
        with self._open_transaction():
            if self._is_stale or not self._waiting:
                self._waiting = deque(self._operations.running(MAX_KNOWN_OPERATIONS))
                self._is_stale = False
            if not self._waiting:
                return IDLE_SECONDS
            key = self._waiting[0]
            result: SliceResult = self._runner.run_slice(key, SLICE_ITEMS, reading.wall)
        self._waiting.rotate(-1)
        if not result.has_more:
            self._waiting.remove(key)
            if result.operation is not None:
                operation = result.operation
                self._log(
                    "operation_ended",
                    operation_id=operation.operation_id,
                    action=operation.action.value,
                    status=operation.status.value,
                    done=operation.done,
                    failed=operation.failed,
                )
        return max(SLICE_PAUSE_SECONDS, result.wait_seconds)


def build_bulk_operations(
    store: Store,
    jobs: Jobs,
    queries: JobQueries,
    applier: ChangeApplier,
    quotas: Quotas,
    open_transaction: OpenTransaction,
    clock: Clock,
    new_id: NewId,
    log: Log,
    steady: float,
) -> tuple[BulkOperations, OperationCommands]:
    """Return the driver of a node's operations, and the commands that begin and cancel them."""
    definitions = Definitions(store.job_states, store.blobs)
    actions = OperationActions(jobs, applier, store.job_states, definitions, quotas)
    runner = OperationRunner(store.operations, actions)
    driver = BulkOperations(store.operations, runner, open_transaction, log, steady)
    matcher = Matcher(store.job_index, store.job_states, store.history, queries)
    commands = OperationCommands(
        store.operations,
        matcher,
        JobLabels(store.job_states),
        IdempotencyKeys(store.receipts),
        clock,
        new_id,
        driver.notify_created,
    )
    return driver, commands
