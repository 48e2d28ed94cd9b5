"""This machine's clock, corrected by the times in a store's answers.

All instances then measure shared rows on one clock, even if their own clocks differ.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

SECOND = timedelta(seconds=1)


class StoreClock:
    """Correct to about a second from the first answer on, and better with later ones.

    An answer names the second in which it was made. So at some moment between the call and the
    answer, the store's clock was within that second. A clock outside it moves by the difference. A
    correct clock never moves, and a clock that is set moves again.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._offset = timedelta()

    def __call__(self) -> datetime:
        return self._clock() + self._offset

    def uncorrected(self) -> datetime:
        return self._clock()

    def correct(self, second: datetime, called_at: datetime, answered_at: datetime) -> None:
        """Learn from an answer made in that second; the other times are of the own clock."""
        if called_at <= answered_at:  # otherwise the clock was set back in between
            self._offset = max(second - answered_at, min(second + SECOND - called_at, self._offset))
