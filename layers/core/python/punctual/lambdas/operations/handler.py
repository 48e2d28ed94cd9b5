"""Carries out operations. A message lets an invocation run slices of one for up to 20 s.

An invocation that leaves items over sends the next message. The planner sends one for an operation
that stands still. So a lost message, or a crash, delays an operation by minutes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from punctual.aws.sqs.operation_queue import OperationMessage, parse_operation_message
from punctual.domain.errors import Invalid, Unavailable
from punctual.domain.operations.operation import MAX_SLICE_AGE, MAX_SLICE_ITEMS, Operation
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.job_names import JobNames
from punctual.engine.operations.actions import OperationActions
from punctual.engine.operations.runner import OperationRunner, SliceResult
from punctual.engine.operations.slice_tries import retry_delay_seconds
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.operations import OperationKey, Operations
from punctual.lambdas import quotas
from punctual.lambdas.job_commands import build_jobs, build_queries
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Telemetry
from punctual.settings import OPERATION_CONCURRENCY

TURN_SECONDS = 20.0  # in which an invocation begins slices
# In which it may call AWS, and then SQS. The last call of each takes 8 s more, of 60 s in all.
OPERATION_CALL_SECONDS, SEND_SECONDS = 35.0, 5.0
SLICE_PERIOD_SECONDS = 1.0  # a slice has the items of about a second
MAX_MESSAGE_WAIT_SECONDS = 60.0  # of one message, so that a waiting operation moves


class MessageSender(Protocol):
    def send(self, messages: Sequence[OperationMessage], delay_seconds: float = 0) -> None: ...


class OperationsHandler:
    def __init__(
        self,
        *,
        operations: Operations,
        runner: OperationRunner,
        queue: MessageSender,
        items_per_second: float,
        clock: Clock,
        steady: Callable[[], float],
        pause: Callable[[float], None],
        time_limit: Callable[[float], Any],
        log: Telemetry,
    ) -> None:
        self._operations = operations
        self._runner = runner
        self._queue = queue
        self._items_per_second = items_per_second
        self._slice_items = max(
            1, min(MAX_SLICE_ITEMS, int(items_per_second * SLICE_PERIOD_SECONDS))
        )
        self._clock = clock
        self._steady = steady
        self._pause = pause
        self._time_limit = time_limit
        self._log = log

    def handle(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Process messages, usually one. Return the partial batch response."""
        with self._log.invocation(), self._time_limit(OPERATION_CALL_SECONDS):
            turn_seconds = TURN_SECONDS / len(records)
            failed = [
                record["messageId"]
                for record in records
                if not self._handle_record(record, turn_seconds)
            ]
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

    def _handle_record(self, record: Mapping[str, Any], turn_seconds: float) -> bool:
        """Return whether SQS may delete the message.

        An invocation that crashed leaves its message, so each further receive counts as a failure.
        """
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        try:
            message = parse_operation_message(record["body"])
            failed_tries = message.failed_tries + receives - 1
            operation = self._operations.load(message.key)
        except (Invalid, Unavailable) as error:
            self._log.error("operation_message_failed", error=error.message, receives=receives)
            return False
        if operation is None or not operation.is_running:
            return True
        if message.revision < operation.revision:
            self._log("operation_message_outdated", operation_id=operation.operation_id)
            return True
        self._run_slices(message.key, operation, failed_tries, turn_seconds)
        return True

    def _run_slices(
        self, key: OperationKey, operation: Operation, failed_tries: int, turn_seconds: float
    ) -> None:
        """Run slices at the rate of the stage until the turn ends, and send the next message."""
        ends_steady = self._steady() + turn_seconds
        while True:
            begun_steady = self._steady()
            try:
                result = self._run_slice(key, failed_tries)
            except Unavailable as error:
                self._log("operation_waits", operation_id=key.operation_id, error=error.message)
                self._send_after_failure(key, operation, failed_tries + 1)
                return
            if result.operation is None or not result.has_more or result.was_lost:
                self._log_end(result)
                return
            operation, failed_tries = result.operation, 0
            rate_seconds = result.item_count / self._items_per_second
            wait_seconds = max(
                result.wait_seconds, begun_steady + rate_seconds - self._steady(), 0.0
            )
            if self._steady() + wait_seconds >= ends_steady:
                delay_seconds = min(wait_seconds, MAX_MESSAGE_WAIT_SECONDS)
                self._send(OperationMessage(key, operation.revision), delay_seconds)
                return
            if wait_seconds:
                self._pause(wait_seconds)

    def _run_slice(self, key: OperationKey, failed_tries: int) -> SliceResult:
        """Run a slice. One that has to wait raises the revision, and shows that it moves."""
        now = self._clock()
        result = self._runner.run_next(key, self._slice_items, failed_tries, now)
        if not result.has_more or result.operation is None or result.was_lost or result.item_count:
            return result
        waiting = self._runner.record_wait(key, result.operation, now)
        return waiting._replace(wait_seconds=result.wait_seconds)

    def _send_after_failure(
        self, key: OperationKey, operation: Operation, failed_tries: int
    ) -> None:
        """Send the message of the next revision, which the failed slice may have written."""
        message = OperationMessage(key, operation.revision + 1, failed_tries)
        self._send(message, retry_delay_seconds(failed_tries))

    def _send(self, message: OperationMessage, delay_seconds: float) -> None:
        """Send the next message. If SQS fails, the planner sends it later."""
        try:
            with self._time_limit(SEND_SECONDS):
                self._queue.send([message], delay_seconds)
        except Unavailable as error:
            self._log.error(
                "operation_message_not_sent",
                operation_id=message.key.operation_id,
                error=error.message,
            )

    def _log_end(self, result: SliceResult) -> None:
        operation = result.operation
        if operation is not None and not operation.is_running:
            self._log(
                "operation_ended",
                tenant=operation.tenant,
                operation_id=operation.operation_id,
                action=operation.action.value,
                status=operation.status.value,
                done=operation.done,
                failed=operation.failed,
            )


def build_handler(runtime: Runtime) -> OperationsHandler:
    ports = runtime.ports
    stage_quotas = quotas.build_api_quotas(runtime)
    actions = OperationActions(
        build_jobs(runtime, build_queries(runtime), stage_quotas.quotas),
        runtime.applier,
        ports.job_states,
        Definitions(ports.job_states, ports.blobs),
        JobNames(ports.job_names, ports.job_states, runtime.new_id),
        stage_quotas.quotas,
    )
    return OperationsHandler(
        operations=ports.operations,
        runner=OperationRunner(ports.operations, actions, MAX_SLICE_AGE),
        queue=ports.operation_queue,
        items_per_second=runtime.settings.operations_per_second / OPERATION_CONCURRENCY,
        clock=runtime.clock,
        steady=runtime.steady,
        pause=runtime.pause,
        time_limit=runtime.deadline.within,
        log=runtime.log,
    )
