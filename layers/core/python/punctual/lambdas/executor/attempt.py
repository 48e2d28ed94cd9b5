"""One attempt in an invocation with its thread, its time limits and its abandonment."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.durations import CLAIM_LEASE, HOLD
from punctual.domain.errors import Unavailable
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.executor import Assignment, Finished
from punctual.engine.ports.rows import Detail
from punctual.engine.ports.run_queue import Message
from punctual.lambdas.executor.outputs import AttemptResult
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.registry import Registry

GRACE = 0.5  # seconds that a task has to end after a stop or its timeout


class Lane(NamedTuple):
    """The settings of a lane.

    With `beats_at_once` the first heartbeat follows the claim, for long runs.
    """

    beats_at_once: bool


class Delivery(NamedTuple):
    """One delivery of a message."""

    id: str
    handle: str
    url: str
    receives: int
    message: Message


class _Log:
    """Holds the log of a task in memory until it ends. Tasks of a function log little."""

    def __init__(self) -> None:
        self.data = bytearray()

    def log(self, data: bytes) -> None:
        self.data += data


class RunningAttempt:
    """Runs one task. A thread calls it, and the loop uses all other methods.

    A task that does not end by itself is abandoned. A later outcome is ignored.
    """

    def __init__(
        self,
        delivery: Delivery,
        assignment: Assignment,
        registry: Registry,
        began: float,
        left: float,
        is_lost: Callable[[], bool],
    ) -> None:
        self.delivery = delivery
        self.assignment = assignment
        self.stop = StopSignal(is_lost)
        self.log = _Log()
        self.detail: Detail | None = None  # set after output and log are stored
        self.ended_at: float | None = None
        self._allowed = assignment.timeout_seconds
        self._registry = registry
        self._cut = left < self._allowed
        self._ends = began + min(left, self._allowed)
        self._said: Outcome | None = None
        self._given_up: Outcome | None = None
        self._crash: BaseException | None = None
        self._stopped_at: float | None = None
        self._timeout = timedelta(seconds=min(left, self._allowed))
        self._attempt = replace(attempt_of(assignment), timeout=self._timeout)

    def __call__(self) -> None:
        try:
            self._said = self._registry.run(self._attempt, self.stop, self.log)
        except BaseException as crash:
            self._crash = crash

    def look(self, steady: float) -> None:
        """Record whether the attempt has ended, or abandon it.

        Raise the error of a crashed thread.
        """
        if self._crash is not None:
            raise self._crash
        if self.ended_at is not None:
            return
        if self.stop.wanted() and self._stopped_at is None:
            self._stopped_at = steady
        if self._said is None:
            if steady >= self._ends + GRACE:
                self._given_up = Outcome.timed_out(self._timeout)
                self.stop.stop("SHUTDOWN")
            elif self._stopped_at is not None and steady >= self._stopped_at + GRACE:
                self._given_up = Outcome.stopped(self.stop.wanted())
        if self._said is not None or self._given_up is not None:
            self.ended_at = steady

    @property
    def next_at(self) -> float:
        """Return the latest time for the next `look`, by the monotonic clock."""
        grace_from = self._ends if self._stopped_at is None else self._stopped_at
        return min(grace_from, self._ends) + GRACE

    @property
    def outcome(self) -> Outcome:
        found = self._given_up or self._said
        assert found is not None
        if found.status == "TIMED_OUT" and self._cut:
            return _cut_short(found, self._timeout, self._allowed)
        return found

    @property
    def goes_back(self) -> bool:
        """Return whether another executor takes the run, instead of a result.

        Either the attempt could not begin, or the claim was lost and its effects are unknown.
        """
        lost = self.stop.wanted() == "LOST" and self.outcome.status == "CANCELLED"
        return lost or not self.outcome.begun

    @property
    def finished(self) -> Finished:
        """Return the end of the attempt. Output and log must be stored."""
        run, outcome = self.assignment.run, self.outcome
        assert self.detail is not None
        status = RunStatus(outcome.status)
        return Finished(
            self.assignment.key, run.run_id, run.token, status, outcome.retryable, self.detail
        )

    @property
    def result(self) -> AttemptResult:
        return AttemptResult(self.assignment, self.outcome, bytes(self.log.data))

    def fail_unstored(self, error: Unavailable) -> None:
        """End the attempt as FAILED, because its output or log is not stored."""
        self._given_up = Outcome.failed(f"The output could not be stored: {error.message}")
        self.detail = detail_of(self.assignment, self._given_up)


def _cut_short(outcome: Outcome, after: timedelta, allowed: int) -> Outcome:
    text = (
        f"Stopped after {after.total_seconds():.0f} s, because the function that ran it had to "
        f"end; the job allows {allowed} s"
    )
    return replace(outcome, error=text)


def taken(rest: list[Delivery], message: Message) -> Delivery:
    """Return the first delivery of the message and remove it from `rest`."""
    one = next(one for one in rest if one.message == message)
    rest.remove(one)
    return one


def is_old(run: Run, now: datetime) -> bool:
    """Return whether the claim may expire before its first renewal, after a slow payload read."""
    return run.attempt_at is not None and now - run.attempt_at > CLAIM_LEASE - HOLD
