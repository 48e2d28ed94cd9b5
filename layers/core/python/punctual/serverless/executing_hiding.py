"""For how long the messages of one invocation are hidden: a crash is to bring them back soon.

The queue's own visibility has to be as long as the function may run, which is too long for that.
"""

from collections.abc import Iterable, Sequence

from punctual.serverless import executing_pace as pace
from punctual.serverless.executing_hands import Beside
from punctual.serverless.executing_mail import Delivered, Mail
from punctual.serverless.executing_work import Delivery


class Hiding:
    def __init__(self, mail: Mail, beside: Beside, began: float) -> None:
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
