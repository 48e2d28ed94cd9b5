"""The messages of one invocation: hide, acknowledge, and return them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from punctual.aws.sqs.visibility import SqsDeliveries
from punctual.domain.errors import Unavailable
from punctual.domain.leases import CLAIM_LEASE
from punctual.engine.ports.clock import Clock
from punctual.lambdas.executor import timing
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.threads import BackgroundCalls
from punctual.lambdas.telemetry import Telemetry

MAX_BACK_OFF_SECONDS = 300  # longest delay, in seconds, of a message while the store fails


class DeliveredMessage(Protocol):
    """One delivery of a message about a run or a notification."""

    @property
    def id(self) -> str: ...

    @property
    def receipt_handle(self) -> str: ...

    @property
    def queue_url(self) -> str: ...

    @property
    def receive_count(self) -> int: ...


class MessageBatch:
    def __init__(self, deliveries: SqsDeliveries, clock: Clock, log: Telemetry) -> None:
        self._deliveries = deliveries
        self._clock = clock
        self._log = log
        self._retry_times: dict[DeliveredMessage, datetime] = {}
        self._acknowledged: set[str] = set()  # receipt handles

    def extend_for_lease(self, messages: Iterable[DeliveredMessage]) -> None:
        """Hide messages for the lease of a claim.

        After a crash they reappear when the lease expires.
        """
        seconds = int(CLAIM_LEASE.total_seconds())
        self._set_visibility(
            {
                message: seconds
                for message in messages
                if message.receipt_handle not in self._acknowledged
            }
        )

    def extend_by_receives(self, messages: Iterable[DeliveredMessage]) -> None:
        """Hide messages for longer after each delivery.

        A message that crashes its executor must not return more often than others.
        """
        self._set_visibility(
            {message: _back_off_seconds(message.receive_count - 1) for message in messages}
        )

    def acknowledge(self, messages: Sequence[DeliveredMessage]) -> None:
        """Delete messages. They do not return, however this invocation ends."""
        for url in {message.queue_url for message in messages}:
            handles = [message.receipt_handle for message in messages if message.queue_url == url]
            self._deliveries.acknowledge(url, handles)
            self._acknowledged.update(handles)

    def retry_at(self, message: DeliveredMessage, visible_at: datetime) -> None:
        self._retry_times[message] = visible_at

    def back_off(self, messages: Iterable[DeliveredMessage]) -> None:
        """Return messages after a failed store call, with a longer delay after each delivery."""
        now = self._clock()
        for message in messages:
            self._retry_times[message] = now + timedelta(
                seconds=_back_off_seconds(message.receive_count)
            )

    def batch_failures(self) -> list[str]:
        """Set the delay of returned messages. Return their message ids."""
        now = self._clock()
        delays = {
            message: -((now - visible_at) // timedelta(seconds=1))
            for message, visible_at in self._retry_times.items()
            if message.receipt_handle not in self._acknowledged
        }
        try:
            self._set_visibility(delays)
        except Unavailable as error:
            # The messages return anyway, only at another time.
            self._log.error("hiding_failed", messages=len(delays), error=error.message)
        return [message.id for message in delays]

    def _set_visibility(self, delays: Mapping[DeliveredMessage, int]) -> None:
        for url in {message.queue_url for message in delays}:
            handles = {
                message.receipt_handle: delay_seconds
                for message, delay_seconds in delays.items()
                if message.queue_url == url
            }
            self._deliveries.set_visibility(url, handles)


def _back_off_seconds(receive_count: int) -> int:
    """Return the delay in seconds after this number of deliveries.

    >>> [_back_off_seconds(receive_count) for receive_count in (1, 2, 3, 9, 50)]
    [30, 60, 120, 300, 300]
    """
    return min(MAX_BACK_OFF_SECONDS, int(CLAIM_LEASE.total_seconds()) << min(receive_count - 1, 8))


class VisibilityTimeouts:
    """Sets the visibility timeouts of an invocation's messages, so a crash returns them soon.

    The default timeout of the queue must cover the longest invocation, which is too long after a
    crash.
    """

    def __init__(
        self, messages: MessageBatch, background_calls: BackgroundCalls, began_steady: float
    ) -> None:
        self._messages = messages
        self._background_calls = background_calls
        self._extend_steady: float | None = began_steady + timing.HIDE_AFTER_SECONDS

    def extend_redelivered(self, deliveries: Iterable[Delivery]) -> None:
        """Extend the visibility of redelivered messages at once.

        They may have crashed the previous executor.
        """
        redelivered = [delivery for delivery in deliveries if delivery.receive_count > 1]
        if redelivered:
            self._background_calls.start(
                lambda: self._messages.extend_by_receives(redelivered), "hiding_failed"
            )

    def extend(self, steady: float, unfinished: Sequence[DeliveredMessage]) -> None:
        """Hide messages that are still held after a second for the lease of a claim."""
        if self._extend_steady is None or steady < self._extend_steady:
            return
        self._extend_steady = None
        if unfinished:
            self._background_calls.start(
                lambda: self._messages.extend_for_lease(unfinished), "hiding_failed"
            )

    @property
    def next_steady_times(self) -> list[float]:
        """Return the next time for `extend`, by the monotonic clock."""
        return [] if self._extend_steady is None else [self._extend_steady]
