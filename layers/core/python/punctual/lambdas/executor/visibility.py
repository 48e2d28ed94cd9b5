"""Sets the visibility timeouts of an invocation's messages, so a crash returns them soon.

The default timeout of the queue must cover the longest invocation, which is too long after a crash.
"""

from collections.abc import Iterable, Sequence

from punctual.lambdas.executor import timing
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.messages import DeliveredMessage, MessageBatch
from punctual.lambdas.executor.threads import BackgroundCalls


class VisibilityTimeouts:
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
