"""The life of one run: what happens to its attempts, in the hands of an executor of some kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from punctual.domain.run import Run, RunStatus
from punctual.engine.queries.views import RunView

MAX_WAITS = 40
OUTPUT = b"done"


class Fate(StrEnum):
    """What happens to one attempt. A refused attempt cannot begin for now."""

    SUCCEEDS = "succeeds"
    FAILS = "fails"
    IS_CANCELLED = "is cancelled"
    DIES = "dies"
    IS_REFUSED = "is refused"


class ExecutorStory(ABC):
    """One job with one run, and an executor that takes the run."""

    def __init__(self) -> None:
        self.claims: list[Run] = []  # the run with the token of each claim

    def play(self, *fates: Fate, **document: Any) -> RunView:
        """Let the attempts of a new run have these fates, one after the other. Return the run."""
        retry = {"backoff_seconds": 1, "max_backoff_seconds": 1, "jitter": False}
        self.submit({"max_retries": 0, "retry": retry, **document}, fates)
        for fate in fates:
            self.wait_until(self.is_ready)
            self.claims.append(self.attempt(fate))
        self.wait_until(lambda run: run.ended_at is not None)
        return self.view

    def wait_until(self, is_reached: Callable[[Run], bool]) -> None:
        """Let time pass until the run has reached a state."""
        for _ in range(MAX_WAITS):
            if is_reached(self.view.run):
                return
            self.pass_time()
        raise AssertionError(f"the run stays {self.view.run.status}")

    def is_ready(self, run: Run) -> bool:
        """Return whether the next attempt may be taken."""
        return run.status is RunStatus.QUEUED

    @abstractmethod
    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        """Submit a job that runs at once."""

    @abstractmethod
    def attempt(self, fate: Fate) -> Run:
        """Let an executor claim the run, and let this happen. Return the run with its claim."""

    @abstractmethod
    def pass_time(self) -> None:
        """Let some seconds pass, and evaluate the job where that is due."""

    @abstractmethod
    def succeed_late(self, run: Run) -> bool:
        """Report a success with the claim of this run. Return whether it was accepted."""

    @property
    @abstractmethod
    def view(self) -> RunView:
        """Return the run with its attempts."""
