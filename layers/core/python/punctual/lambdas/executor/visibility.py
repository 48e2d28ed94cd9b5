"""For how long the messages of one invocation are hidden: a crash is to bring them back soon.

The queue's own visibility has to be as long as the function may run, which is too long for that.
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
        """Those that came before are hidden at once: whoever had them may have died of them."""
        again = [one for one in some if one.receives > 1]
        if again:
            self._beside.start(lambda: self._mail.hide_longer(again), "hiding_failed")

    def look(self, steady: float, held: Sequence[Delivered]) -> None:
        """What still stands a second later is hidden for as long as its claim lasts."""
        if self._at is None or steady < self._at:
            return
        self._at = None
        if held:
            self._beside.start(lambda: self._mail.hide(held), "hiding_failed")

    @property
    def moments(self) -> list[float]:
        """By the steady clock: when to look again."""
        return [] if self._at is None else [self._at]
