"""A call as a generator of steps. The blocking and the asyncio client carry out the same steps."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from punctual.client.calls.error_mapping import error_of_outcome
from punctual.client.calls.retrying import (
    AttemptResult,
    Retries,
    classify_outcome,
    may_have_acted,
    retry_delay,
)
from punctual.client.wire import Answer, Outcome, Request

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Send(NamedTuple):
    """Send the request. The generator then receives its outcome."""

    request: Request
    timeout_seconds: float  # limit for one attempt


class Pause(NamedTuple):
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Item(Generic[T_co]):
    """The next item of a stream."""

    value: T_co


Step = Send | Pause
Steps = Generator[Step, Outcome | None, T]
Stream = Generator[Step | Item[T], Outcome | None, None]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client: API root, retry policy, timeouts, clock and random source."""

    root: str
    retries: Retries
    timeout_seconds: float  # seconds, for one attempt
    steady_clock: Callable[[], float]
    random_fraction: Callable[[], float]
    new_idempotency_key: Callable[[], str]


def send_request(
    settings: ClientSettings, request: Request, steady_deadline: float | None = None
) -> Steps[Answer]:
    """Send the request until it is answered. Raise when a retry is unsafe, useless or too late."""
    steady_start = settings.steady_clock()
    policy = settings.retries
    if steady_deadline is not None:
        policy = policy._replace(seconds=min(policy.seconds, steady_deadline - steady_start))
    is_uncertain = False
    attempt = 0
    while True:
        attempt += 1
        outcome = yield Send(request, _attempt_timeout(settings, steady_deadline))
        assert outcome is not None
        if (
            isinstance(outcome, Answer)
            and classify_outcome(request, outcome) is AttemptResult.ANSWERED
        ):
            return outcome
        is_uncertain = is_uncertain or may_have_acted(request, outcome)
        elapsed_seconds = settings.steady_clock() - steady_start
        delay = retry_delay(
            policy, request, outcome, attempt, elapsed_seconds, settings.random_fraction()
        )
        if delay is None:
            raise error_of_outcome(settings.root, request, outcome, is_uncertain, attempt)
        yield Pause(delay)


def collect_items(stream: Stream[T]) -> Steps[list[T]]:
    """Return all items of a stream, as a part of another call."""
    items: list[T] = []
    yield from each_item(stream, items.append)
    return items


def each_item(stream: Stream[T], act: Callable[[T], object]) -> Steps[None]:
    """Call `act` with each item of a stream, as a part of another call."""
    outcome: Outcome | None = None
    while True:
        try:
            step = stream.send(outcome)
        except StopIteration:
            return
        if isinstance(step, Item):
            act(step.value)
            outcome = None
        else:
            outcome = yield step


def _attempt_timeout(settings: ClientSettings, steady_deadline: float | None) -> float:
    """Return the timeout of one attempt. Every attempt gets at least a second."""
    if steady_deadline is None:
        return settings.timeout_seconds
    return min(settings.timeout_seconds, max(1.0, steady_deadline - settings.steady_clock()))
