"""This machine's clock, put right by what a store's answers say of the time.

What instances write for each other is measured on one clock then, whatever theirs say.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

SECOND = timedelta(seconds=1)


class StoreClock:
    """Right to about a second from the first answer on, and closer with each that contradicts it.

    An answer names the second in which it was made. So at some moment between the call and the
    answer the store's clock was within that second: where this one, as it is put right, was not, it
    is moved just so far. What was always right is never moved, and what was set is moved again.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._off = timedelta()

    def __call__(self) -> datetime:
        return self._clock() + self._off

    def own(self) -> datetime:
        return self._clock()

    def hear(self, second: datetime, called: datetime, answered: datetime) -> None:
        """An answer made in that second, called for and received at these moments of `own`."""
        if called <= answered:  # else it was set back in between
            self._off = max(second - answered, min(second + SECOND - called, self._off))
