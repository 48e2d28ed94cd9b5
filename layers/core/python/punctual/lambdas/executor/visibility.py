"""Sets the visibility timeouts of an invocation's messages, so a crash returns them soon.

The default timeout of the queue must cover the longest invocation, which is too long after a crash.
"""

from collections.abc import Iterable, Sequence

from punctual.lambdas.executor import timing as pace
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.messages import Delivered, MessageBatch
from punctual.lambdas.executor.threads import BackgroundCalls


class VisibilityTimeouts:
    def __init__(self, mail: MessageBatch, beside: BackgroundCalls, began: float) -> None:
        self._mail = mail
        self._beside = beside
        self._at: float | None = began + pace.HIDE_AFTER

    def begin(self, some: Iterable[Delivery]) -> None:
        """Extend the visibility of redelivered messages at once.

        They may have crashed the previous executor.
        """
        again = [one for one in some if one.receives > 1]
        if again:
            self._beside.start(lambda: self._mail.hide_longer(again), "hiding_failed")

    def look(self, steady: float, held: Sequence[Delivered]) -> None:
        """Hide messages that are still held after a second for the lease of a claim."""
        if self._at is None or steady < self._at:
            return
        self._at = None
        if held:
            self._beside.start(lambda: self._mail.hide(held), "hiding_failed")

    @property
    def moments(self) -> list[float]:
        """Return the next time for `look`, by the monotonic clock."""
        return [] if self._at is None else [self._at]
