"""Decide whether and when to send a request again. These functions do no I/O."""

from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

import msgspec

from punctual.client.wire import Answer, Failure, Outcome, Repeat, Request


class Retries(NamedTuple):
    """The retry policy of a client: the number of attempts, and the time for their starts.

    What follows changes, runs or logs goes on for `reconnect_seconds` without an answer.
    """

    attempts: int = 6
    seconds: float = 60.0
    first_delay: float = 0.1  # upper bound, doubled per attempt; the delay is a random part of it
    longest_delay: float = 5.0
    reconnect_seconds: float = 600.0


class AttemptResult(Enum):
    ANSWERED = "answered"
    REFUSED = "refused"  # a retry cannot help
    NOT_DONE = "not done"  # the server certainly did not carry it out
    UNKNOWN = "unknown"  # the server may have carried it out


_NOT_DONE_STATUSES = frozenset({408, 429})
_UNKNOWN_STATUSES = frozenset({502, 503, 504})


def classify_outcome(request: Request, outcome: Outcome) -> AttemptResult:
    """Classify the outcome of one attempt."""
    if isinstance(outcome, Failure):
        if outcome.final:
            return AttemptResult.REFUSED
        return AttemptResult.UNKNOWN if outcome.sent else AttemptResult.NOT_DONE
    if outcome.status in request.expected:
        return AttemptResult.ANSWERED
    if outcome.status in _NOT_DONE_STATUSES:
        return AttemptResult.NOT_DONE
    if outcome.status in _UNKNOWN_STATUSES or (
        outcome.status == 500 and not _is_internal_error(outcome)
    ):
        return AttemptResult.UNKNOWN
    return AttemptResult.REFUSED


def retry_delay(
    policy: Retries,
    request: Request,
    outcome: Outcome,
    attempt: int,
    elapsed_seconds: float,
    random_fraction: float,
) -> float | None:
    """Return the seconds until the next attempt, or None for no further attempt.

    `attempt` counts from 1. `elapsed_seconds` is the time since the first attempt.
    `random_fraction` is a random number in [0, 1).
    """
    result = classify_outcome(request, outcome)
    is_repeatable = result is AttemptResult.NOT_DONE or (
        result is AttemptResult.UNKNOWN and request.repeat is not Repeat.NEVER
    )
    if not is_repeatable or attempt >= policy.attempts:
        return None
    max_delay = min(policy.longest_delay, policy.first_delay * 2 ** (attempt - 1))
    delay_seconds = random_fraction * max_delay + (retry_after(outcome) or 0.0)
    return delay_seconds if elapsed_seconds + delay_seconds < policy.seconds else None


def may_have_acted(request: Request, outcome: Outcome) -> bool:
    """Return True if the attempt may have changed something although it was not answered."""
    return (
        request.repeat is not Repeat.READS
        and classify_outcome(request, outcome) is AttemptResult.UNKNOWN
    )


def retry_after(outcome: Outcome) -> float | None:
    """Return the delay in seconds that the server asks for, or None.

    A date is compared with the server's own clock, because the local clock may be wrong.
    """
    if isinstance(outcome, Failure):
        return None
    value = outcome.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        retry_at = parsedate_to_datetime(value)
        server_now = parsedate_to_datetime(outcome.headers.get("date", ""))
        return max(0.0, (retry_at - server_now).total_seconds())
    except (TypeError, ValueError):
        return None


def _is_internal_error(answer: Answer) -> bool:
    """Return True for a 500 of Punctual itself.

    A retry fails again. A 500 of a gateway may pass.
    """
    try:
        value = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict) and value.get("code") == "INTERNAL"
