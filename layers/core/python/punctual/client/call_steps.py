"""A call as a generator of steps. The blocking and the asyncio client carry out the same steps."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from punctual.client.error_mapping import refusal
from punctual.client.retrying import Fate, Retries, again_in, fate, may_have_acted
from punctual.client.wire import Answer, Outcome, Request

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Send(NamedTuple):
    """Send the request. The generator then receives its outcome."""

    request: Request
    seconds: float  # limit for one attempt


class Pause(NamedTuple):
    seconds: float


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """The next item of a stream."""

    value: T_co


Step = Send | Pause
Steps = Generator[Step, Outcome | None, T]
Stream = Generator[Step | Give[T], Outcome | None, None]


@dataclass(frozen=True, slots=True)
class Core:
    """The settings of a client: API root, retry policy, timeouts, clock and random source."""

    root: str
    retries: Retries
    timeout: float  # seconds, for one attempt
    seconds: Callable[[], float]
    chance: Callable[[], float]
    new_key: Callable[[], str]


def ask(core: Core, request: Request, until: float | None = None) -> Steps[Answer]:
    """Send the request until it is answered. Raise when a retry is unsafe, useless or too late."""
    begun = core.seconds()
    policy = core.retries
    if until is not None:
        policy = policy._replace(seconds=min(policy.seconds, until - begun))
    uncertain = False
    attempt = 0
    while True:
        attempt += 1
        outcome = yield Send(request, _patience(core, until))
        assert outcome is not None
        if isinstance(outcome, Answer) and fate(request, outcome) is Fate.ANSWERED:
            return outcome
        uncertain = uncertain or may_have_acted(request, outcome)
        spent = core.seconds() - begun
        delay = again_in(policy, request, outcome, attempt, spent, core.chance())
        if delay is None:
            raise refusal(core.root, request, outcome, uncertain, attempt)
        yield Pause(delay)


def _patience(core: Core, until: float | None) -> float:
    """Return the timeout of one attempt. Every attempt gets at least a second."""
    if until is None:
        return core.timeout
    return min(core.timeout, max(1.0, until - core.seconds()))
