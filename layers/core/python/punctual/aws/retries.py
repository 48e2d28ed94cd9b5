"""Calls to AWS: which failures are retried, how errors are translated, and a request's deadline."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotocoreConnectionError

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import hash_fraction

T = TypeVar("T")
Client = Callable[[], Any]  # returns a client, which is created at first use

CONDITION_FAILED_CODE = "ConditionalCheckFailedException"
THROTTLING_CODES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "ThrottlingException",
        "ThrottledException",
        "TransactionConflictException",  # a write of one row met a transaction
        "TransactionInProgressException",
    }
)


# Cancellation reasons of a transaction that can succeed when it is repeated.
_REPEATABLE_CANCELLATIONS = {
    "None",
    "ConditionalCheckFailed",
    "TransactionConflict",
    "ThrottlingError",
} | {"ProvisionedThroughputExceeded"}


class RetryPolicy:
    """The number of tries and the waits between them, which double and have jitter.

    `seed` differs by process, so that processes do not retry at the same time.
    """

    def __init__(
        self,
        sleep: Callable[[float], None],
        seed: str,
        tries: int = 6,
        first_wait_seconds: float = 0.05,
        max_wait_seconds: float = 2.0,
    ) -> None:
        self.tries = tries
        self._sleep = sleep
        self._seed = seed
        self._first_wait_seconds = first_wait_seconds
        self._max_wait_seconds = max_wait_seconds

    def wait(self, attempt: int, jitter_key: str) -> None:
        """Sleep after the failed try number `attempt`, counted from 0."""
        max_seconds = min(self._max_wait_seconds, self._first_wait_seconds * 2**attempt)
        self._sleep(max_seconds * (0.5 + hash_fraction(self._seed, jitter_key, str(attempt)) / 2))


class ConditionFailed(NamedTuple):
    """The answer to a write with a failed condition.

    `ambiguous` means that an earlier try of the same write may have won.
    """

    item: Mapping[str, Any]  # the present row; empty if there is none
    ambiguous: bool


class UnknownOutcome(Exception):
    """Raised without an answer, or after a service error. The call may have taken effect."""


def call_aws(activity: str, call: Callable[[], T]) -> T:
    """Return the answer of the call. `activity` completes "AWS did not answer while …"."""
    try:
        return call_once(activity, call)
    except UnknownOutcome as unknown_outcome:
        raise no_answer_error(activity) from unknown_outcome


def conditional_write(
    activity: str, call: Callable[[], T], retry_policy: RetryPolicy
) -> T | ConditionFailed:
    """Make a conditional write, and retry it while its outcome is unknown.

    The write must be safe to repeat: a second one fails its condition or changes nothing.
    """
    is_repeat = False

    def write_once() -> T | ConditionFailed:
        try:
            return call()
        except ClientError as error:
            if error_code(error) != CONDITION_FAILED_CODE:
                raise
            item = cast(Mapping[str, Any], error.response.get("Item", {}))
            return ConditionFailed(
                item, is_repeat or _response_metadata(error).get("RetryAttempts", 0) > 0
            )

    for attempt in range(retry_policy.tries - 1):
        try:
            return call_once(activity, write_once)
        except UnknownOutcome:
            is_repeat = True
            retry_policy.wait(attempt, activity)
    try:
        return call_once(activity, write_once)
    except UnknownOutcome as unknown_outcome:
        raise no_answer_error(activity) from unknown_outcome


def was_cancelled(call: Callable[[], Any]) -> bool:
    """Make a transaction. Return whether a condition, a conflict or throttling cancelled it."""
    try:
        call()
    except ClientError as error:
        response: Any = error.response
        reasons = {reason.get("Code") for reason in response.get("CancellationReasons", ())}
        if not reasons or not reasons <= _REPEATABLE_CANCELLATIONS:
            raise
        return True
    return False


def call_once(activity: str, call: Callable[[], T]) -> T:
    """Return the answer of one try. Raise `UnknownOutcome` if a retry may help."""
    try:
        return call()
    except ClientError as error:
        if (
            error_code(error) in THROTTLING_CODES
            or _response_metadata(error).get("HTTPStatusCode", 0) >= 500
        ):
            raise UnknownOutcome(error_code(error)) from error
        raise _rejected_error(activity, error) from error
    except (HTTPClientError, BotocoreConnectionError) as error:
        raise UnknownOutcome(type(error).__name__) from error
    except BotoCoreError as error:
        raise no_answer_error(activity) from error


def no_answer_error(activity: str) -> Unavailable:
    return Unavailable(f"AWS did not answer while {activity}.")


def _rejected_error(activity: str, error: ClientError) -> Unavailable:
    return Unavailable(f"AWS refused with {error_code(error)} while {activity}.")


def error_code(error: ClientError) -> str:
    """Return the code of an error of AWS, for example `ThrottlingException`."""
    return error.response.get("Error", {}).get("Code", "an error")


def _response_metadata(error: ClientError) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], error.response.get("ResponseMetadata", {}))


class Deadline:
    """The time after which no call to AWS starts, and no retry of an earlier call.

    The waiting client of a request has a timeout.
    A try under way ends by its own timeout. So a request lasts at most its limit and one try of
    one call (docs/decisions/0017-availability.md).
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._ends_steady: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the deadline for one request. An environment of Lambda handles one at a time."""
        self._ends_steady = self._steady() + seconds
        try:
            yield
        finally:
            self._ends_steady = None

    def attach_to(self, client: Any) -> None:
        """Check the deadline before each call of the client, and before each retry of botocore."""
        for event in ("before-call", "before-send"):
            client.meta.events.register_first(event, self._check)

    def _check(self, **_: Any) -> None:
        if self._ends_steady is not None and self._steady() >= self._ends_steady:
            raise Unavailable("AWS takes too long to answer: try again.")
