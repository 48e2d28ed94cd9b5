"""A call as a sequence of steps, which one transport does and waits, and another awaits."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from punctual.client.error_mapping import refusal
from punctual.client.retrying import Fate, Retries, again_in, fate, may_have_acted
from punctual.client.wire import Answer, Outcome, Request

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Send(NamedTuple):
    """Send this; what is sent back in is what became of it."""

    request: Request
    seconds: float  # to wait for it at most


class Pause(NamedTuple):
    seconds: float


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """The next thing of many."""

    value: T_co


Step = Send | Pause
Steps = Generator[Step, Outcome | None, T]
Stream = Generator[Step | Give[T], Outcome | None, None]


@dataclass(frozen=True, slots=True)
class Core:
    """What every call needs: where to, and what time, chance and patience there are."""

    root: str
    retries: Retries
    timeout: float  # seconds, of one attempt
    seconds: Callable[[], float]
    chance: Callable[[], float]
    new_key: Callable[[], str]


def ask(core: Core, request: Request, until: float | None = None) -> Steps[Answer]:
    """Send until there is an answer, or until asking again is not safe, or of no use."""
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
    """However late it is, an attempt gets a second."""
    if until is None:
        return core.timeout
    return min(core.timeout, max(1.0, until - core.seconds()))
