"""Calls to AWS: which failures are retried, and how errors are translated."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import fraction

T = TypeVar("T")
Client = Callable[[], Any]  # returns a client, which is created at first use

CONDITION = "ConditionalCheckFailedException"
THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "ThrottlingException",
        "ThrottledException",
        "TransactionInProgressException",
    }
)


# Cancellation reasons of a transaction that can succeed when it is repeated.
_CANCELLED = {"None", "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError"} | {
    "ProvisionedThroughputExceeded"
}


class RetryPolicy:
    """The number of tries and the waits between them, which double and have jitter.

    `seed` differs by process, so that processes do not retry at the same time.
    """

    def __init__(
        self,
        sleep: Callable[[float], None],
        seed: str,
        tries: int = 6,
        first: float = 0.05,
        most: float = 2.0,
    ) -> None:
        self.tries = tries
        self._sleep = sleep
        self._seed = seed
        self._first = first
        self._most = most

    def wait(self, attempt: int, what: str) -> None:
        """Sleep after the failed try number `attempt`, counted from 0."""
        longest = min(self._most, self._first * 2**attempt)
        self._sleep(longest * (0.5 + fraction(self._seed, what, str(attempt)) / 2))


class ConditionFailed(NamedTuple):
    """The answer to a write with a failed condition.

    `ambiguous` means that an earlier try of the same write may have won.
    """

    item: Mapping[str, Any]  # the present row; empty if there is none
    ambiguous: bool


class UnknownOutcome(Exception):
    """Raised without an answer, or after a service error. The call may have taken effect."""


def answer(doing: str, call: Callable[[], T]) -> T:
    """Return the answer of the call. `doing` completes the error "AWS did not answer while …"."""
    try:
        return once(doing, call)
    except UnknownOutcome as unsure:
        raise unanswered(doing) from unsure


def conditional(doing: str, call: Callable[[], T], patience: RetryPolicy) -> T | ConditionFailed:
    """Make a conditional write, and retry it while its outcome is unknown.

    The write must be safe to repeat: a second one fails its condition or changes nothing.
    """
    tried = False

    def guarded() -> T | ConditionFailed:
        try:
            return call()
        except ClientError as error:
            if _code(error) != CONDITION:
                raise
            item = cast(Mapping[str, Any], error.response.get("Item", {}))
            return ConditionFailed(item, tried or _about(error).get("RetryAttempts", 0) > 0)

    for attempt in range(patience.tries - 1):
        try:
            return once(doing, guarded)
        except UnknownOutcome:
            tried = True
            patience.wait(attempt, doing)
    try:
        return once(doing, guarded)
    except UnknownOutcome as unsure:
        raise unanswered(doing) from unsure


def lost(call: Callable[[], Any]) -> bool:
    """Make a transaction. Return whether a condition, a conflict or throttling cancelled it."""
    try:
        call()
    except ClientError as error:
        told: Any = error.response
        reasons = {one.get("Code") for one in told.get("CancellationReasons", ())}
        if not reasons or not reasons <= _CANCELLED:
            raise
        return True
    return False


def once(doing: str, call: Callable[[], T]) -> T:
    """Return the answer of one try. Raise `UnknownOutcome` if a retry may help."""
    try:
        return call()
    except ClientError as error:
        if _code(error) in THROTTLED or _about(error).get("HTTPStatusCode", 0) >= 500:
            raise UnknownOutcome(_code(error)) from error
        raise _refused(doing, error) from error
    except (HTTPClientError, NotConnected) as error:
        raise UnknownOutcome(type(error).__name__) from error
    except BotoCoreError as error:
        raise unanswered(doing) from error


def unanswered(doing: str) -> Unavailable:
    return Unavailable(f"AWS did not answer while {doing}.")


def _refused(doing: str, error: ClientError) -> Unavailable:
    return Unavailable(f"AWS refused with {_code(error)} while {doing}.")


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "an error")


def _about(error: ClientError) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], error.response.get("ResponseMetadata", {}))
