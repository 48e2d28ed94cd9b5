"""Calls to AWS: which failures are tried again, and what becomes of the others."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import fraction

T = TypeVar("T")
Client = Callable[[], Any]  # a boto3 client, made when it is first asked for

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


# Why a transaction may be cancelled, though it can succeed when it is made again.
_CANCELLED = {"None", "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError"} | {
    "ProvisionedThroughputExceeded"
}


class RetryPolicy:
    """How often something is tried, and how long it waits in between: doubling, with jitter.

    `seed` tells processes apart, so that they do not come back together.
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
        """Before the try after number `attempt`, which counts from 0."""
        longest = min(self._most, self._first * 2**attempt)
        self._sleep(longest * (0.5 + fraction(self._seed, what, str(attempt)) / 2))


class ConditionFailed(NamedTuple):
    """The condition of a write did not hold. `ambiguous`: perhaps because an earlier try won."""

    item: Mapping[str, Any]  # the row that stands, empty where there is none
    ambiguous: bool


class UnknownOutcome(Exception):
    """No answer, or an error of the service: the call may have had its effect or not."""


def answer(doing: str, call: Callable[[], T]) -> T:
    """What the call answers; `doing` completes "AWS did not answer while …"."""
    try:
        return once(doing, call)
    except UnknownOutcome as unsure:
        raise unanswered(doing) from unsure


def conditional(doing: str, call: Callable[[], T], patience: RetryPolicy) -> T | ConditionFailed:
    """A write under a condition, tried again where nobody knows what became of it.

    Only for writes that the second time are refused, or change nothing.
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
    """Make a transaction; return whether it was cancelled for what others wrote."""
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
    """One try: `UnknownOutcome` where another may help."""
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
