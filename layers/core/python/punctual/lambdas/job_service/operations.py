"""The commands that begin and cancel operations. Another function carries them out."""

from punctual.aws.sqs.operation_queue import OperationMessage
from punctual.domain.errors import Unavailable
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.operations.commands import OperationCommands
from punctual.engine.operations.matching import Matcher
from punctual.engine.ports.lists.operations import OperationKey
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.lambdas.runtime import Runtime

FIRST_REVISION = 1


def build_operation_commands(runtime: Runtime, queries: JobQueries) -> OperationCommands:
    ports = runtime.ports

    def send_first_message(key: OperationKey) -> None:
        """Send the message that starts the operation. The planner sends one that failed."""
        try:
            ports.operation_queue.send([OperationMessage(key, FIRST_REVISION)])
        except Unavailable as error:
            runtime.log.error(
                "operation_message_not_sent",
                operation_id=key.operation_id,
                error=error.message,
            )

    return OperationCommands(
        ports.operations,
        Matcher(ports.job_index, ports.job_states, ports.history, queries),
        JobLabels(ports.job_states),
        IdempotencyKeys(ports.receipts),
        ports.audit_log,
        runtime.clock,
        runtime.new_id,
        send_first_message,
    )
