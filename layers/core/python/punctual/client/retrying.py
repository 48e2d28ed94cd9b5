"""Whether and when to ask again, as decisions about values."""

from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

import msgspec

from punctual.client.wire import Answer, Failure, Outcome, Repeat, Request


class Retries(NamedTuple):
    """How often a call is tried, and for how long: later no attempt begins."""

    attempts: int = 6
    seconds: float = 60.0
    first_delay: float = 0.1  # at most; doubling, and each drawn from nothing to that
    longest_delay: float = 5.0


class Fate(Enum):
    ANSWERED = "answered"
    REFUSED = "refused"  # trying again cannot help
    NOT_DONE = "not done"  # it was certainly not carried out
    UNKNOWN = "unknown"  # it may have been


_NOT_DONE = frozenset({408, 429})
_UNKNOWN = frozenset({502, 503, 504})


def fate(request: Request, outcome: Outcome) -> Fate:
    """What an attempt came to."""
    if isinstance(outcome, Failure):
        if outcome.final:
            return Fate.REFUSED
        return Fate.UNKNOWN if outcome.sent else Fate.NOT_DONE
    if outcome.status in request.expected:
        return Fate.ANSWERED
    if outcome.status in _NOT_DONE:
        return Fate.NOT_DONE
    if outcome.status in _UNKNOWN or (outcome.status == 500 and not _is_ours(outcome)):
        return Fate.UNKNOWN
    return Fate.REFUSED


def again_in(
    policy: Retries, request: Request, outcome: Outcome, attempt: int, spent: float, chance: float
) -> float | None:
    """Seconds until the next attempt; None: there is none.

    `attempt` counts from 1, `spent` are the seconds since the first began, `chance` is in [0, 1).
    """
    came = fate(request, outcome)
    repeatable = came is Fate.NOT_DONE or (
        came is Fate.UNKNOWN and request.repeat is not Repeat.NEVER
    )
    if not repeatable or attempt >= policy.attempts:
        return None
    most = min(policy.longest_delay, policy.first_delay * 2 ** (attempt - 1))
    delay = chance * most + (retry_after(outcome) or 0.0)
    return delay if spent + delay < policy.seconds else None


def may_have_acted(request: Request, outcome: Outcome) -> bool:
    """Whether the attempt may have changed something although it was not answered."""
    return request.repeat is not Repeat.READS and fate(request, outcome) is Fate.UNKNOWN


def retry_after(outcome: Outcome) -> float | None:
    """Seconds that the server asks for; a date is measured by the server's own clock."""
    if isinstance(outcome, Failure):
        return None
    value = outcome.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        until = parsedate_to_datetime(value)
        now = parsedate_to_datetime(outcome.headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _is_ours(answer: Answer) -> bool:
    """Punctual's own 500 is a fault in it, which asking again finds again; a gateway's passes."""
    try:
        value = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict) and value.get("code") == "INTERNAL"
