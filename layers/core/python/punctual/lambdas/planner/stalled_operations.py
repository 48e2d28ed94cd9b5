"""Sends another message for each running operation that has not moved for minutes.

A request may crash after it has stored its operation, and a function before it sends the next
message. A message that was received too often is a dead letter.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from punctual.aws.sqs.operation_queue import OperationMessage
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.operations import StalledOperation
from punctual.lambdas.telemetry import Telemetry

STALLED_AFTER = timedelta(minutes=2)  # since the last write of an operation
MAX_RESENT_OPERATIONS = 100  # of all tenants, in one tick; those that moved last come later


class OperationRows(Protocol):
    def stalled(self, before: datetime, limit: int) -> Sequence[StalledOperation]: ...


class OperationSender(Protocol):
    def send(self, messages: Sequence[OperationMessage], delay_seconds: float = 0) -> None: ...


class StalledOperations:
    def __init__(
        self, rows: OperationRows, queue: OperationSender, clock: Clock, log: Telemetry
    ) -> None:
        self._rows = rows
        self._queue = queue
        self._clock = clock
        self._log = log

    def send_again(self) -> None:
        """Send a message for each operation that stalls. A failure is left to the next tick.

        If the earlier message still waits, both name the same revision, and the later one to be
        received has no effect.
        """
        before = self._clock() - STALLED_AFTER
        try:
            stalled = self._rows.stalled(before, MAX_RESENT_OPERATIONS)
            if not stalled:
                return
            self._queue.send([OperationMessage(found.key, found.revision) for found in stalled])
        except Unavailable as error:
            self._log.error("operations_not_sent", error=error.message)
            return
        self._log("operations_sent_again", operations=len(stalled))
