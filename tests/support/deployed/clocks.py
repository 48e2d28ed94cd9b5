"""The functions that the template's rules start by time."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.support.deployed.deployed import Rule

_RATE = re.compile(r"rate\((\d+) (minute|hour)s?\)")


@dataclass
class Clock:
    """Starts the function `short` at the time `at`, and then at each interval."""

    short: str
    every: timedelta
    at: datetime

    def rings(self, now: datetime) -> bool:
        """Return True if the clock is due. Missed starts of an outage count once."""
        if self.at > now:
            return False
        self.at += self.every * ((now - self.at) // self.every + 1)
        return True


def every(rule: Rule) -> timedelta:
    """Return the interval of a rule.

    >>> every(Rule("tick", "rate(5 minutes)", None, "default", ()))
    datetime.timedelta(seconds=300)
    """
    rate = _RATE.fullmatch(rule.schedule)
    assert rate is not None, rule.schedule
    return timedelta(**{f"{rate[2]}s": int(rate[1])})
