"""One attempt in an invocation with its thread, its time limits and its abandonment."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace as replace_fields

from punctual.domain.errors import Unavailable
from punctual.domain.leases import CLAIM_LEASE, RENEWAL_TIMEOUT
from punctual.domain.run import Run, RunStatus
from punctual.domain.task_limits import LATER_STARTING_TASK_TYPES
from punctual.engine.execution.executor import Assignment, FinishedAttempt
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.ports.run_queue import Message
from punctual.lambdas.executor.outputs import AttemptResult, StoredResult
from punctual.settings import DEFAULT_SCRIPT_MEMORY_MB
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.script_function import (
    RUNNER_ANSWER_SECONDS,
    needs_container,
    waits_for_script,
)

TASK_STOP_GRACE_SECONDS = 0.5  # seconds that a task has to end after a stop or its timeout
HANDOVER_SECONDS = 20.0  # to read the secrets of a script and to start its function
# To wait for a start of a container, to register its definition, and to call ECS several times.
CONTAINER_HANDOVER_SECONDS = 100.0


class LaneSettings(NamedTuple):
    """The settings of a lane.

    With `renews_at_once` the first heartbeat follows the claim, for long runs. Scripts with more
    memory than `function_memory_mb` run in containers.
    """

    renews_at_once: bool
    function_memory_mb: int = DEFAULT_SCRIPT_MEMORY_MB


class Delivery(NamedTuple):
    """One delivery of a message."""

    id: str
    receipt_handle: str
    queue_url: str
    receive_count: int
    message: Message


class _LogBuffer:
    """Holds the log of a task in memory until it ends. Tasks of a function log little."""

    def __init__(self) -> None:
        self.data = bytearray()

    def log(self, data: bytes) -> None:
        self.data += data


class RunningAttempt:
    """Runs one task. A thread calls it, and the loop uses all other methods.

    A task that does not end by itself is abandoned. A later outcome is ignored. With
    `handover_seconds` the task only starts a runner, which has all of the job's time.
    """

    def __init__(
        self,
        delivery: Delivery,
        assignment: Assignment,
        attempt_runner: AttemptRunner,
        began_steady: float,
        seconds_left: float,
        is_lost: Callable[[], bool],
        handover_seconds: float | None = None,
    ) -> None:
        is_detached = handover_seconds is not None
        self.delivery = delivery
        self.assignment = assignment
        self.stop = StopSignal(is_lost)
        self.log = _LogBuffer()
        self.detail: Detail | None = None  # set after output and log are stored
        self.obsolete_names: Sequence[str] = ()  # of blobs to delete after the end is recorded
        self.ended_steady: float | None = None
        self._allowed_seconds = assignment.timeout_seconds
        self._attempt_runner = attempt_runner
        self._is_detached = is_detached
        self._is_cut_short = seconds_left < self._allowed_seconds and not is_detached
        own_seconds = self._allowed_seconds if handover_seconds is None else handover_seconds
        self._ends_steady = began_steady + min(seconds_left, own_seconds)
        self._grace_seconds = (
            RUNNER_ANSWER_SECONDS if is_script(assignment) else TASK_STOP_GRACE_SECONDS
        )
        self._task_outcome: Outcome | None = None
        self._abandoned_outcome: Outcome | None = None
        self._crash: BaseException | None = None
        self._stopped_steady: float | None = None
        task_seconds = min(seconds_left, self._allowed_seconds)
        self._timeout = timedelta(seconds=self._allowed_seconds if is_detached else task_seconds)
        self._attempt = replace(
            attempt_of(assignment), timeout=self._timeout, is_detached=is_detached
        )

    def __call__(self) -> None:
        try:
            self._task_outcome = self._attempt_runner.run(self._attempt, self.stop, self.log)
        except BaseException as crash:
            self._crash = crash

    def check(self, steady: float) -> None:
        """Record whether the attempt has ended, or abandon it.

        Raise the error of a crashed thread.
        """
        if self._crash is not None:
            raise self._crash
        if self.ended_steady is not None:
            return
        if self.stop.reason() and self._stopped_steady is None:
            self._stopped_steady = steady
        if self._task_outcome is None:
            if steady >= self._ends_steady + self._grace_seconds:
                self._abandoned_outcome = (
                    Outcome("DETACHED") if self._is_detached else Outcome.timed_out(self._timeout)
                )
                self.stop.request_stop("SHUTDOWN")
            elif (
                self._stopped_steady is not None
                and steady >= self._stopped_steady + self._stop_seconds
            ):
                self._abandoned_outcome = Outcome.stopped(self.stop.reason())
        if self._task_outcome is not None or self._abandoned_outcome is not None:
            self.ended_steady = steady

    @property
    def next_check_steady(self) -> float:
        """Return the latest time for the next `check`, by the monotonic clock."""
        grace_steady = self._ends_steady if self._stopped_steady is None else self._stopped_steady
        return min(grace_steady, self._ends_steady) + self._stop_seconds

    @property
    def _stop_seconds(self) -> float:
        """Return how long the task may take to end. After a lost claim its answer is unused."""
        is_lost = self.stop.reason() == "LOST"
        return TASK_STOP_GRACE_SECONDS if is_lost else self._grace_seconds

    @property
    def outcome(self) -> Outcome:
        outcome = self._abandoned_outcome or self._task_outcome
        assert outcome is not None
        if outcome.status == "TIMED_OUT" and self._is_cut_short:
            return _cut_short_outcome(outcome, self._timeout, self._allowed_seconds)
        return outcome

    @property
    def claim(self) -> tuple[JobKey, str, int]:
        """Return job, run and fencing token."""
        run = self.assignment.run
        return self.assignment.key, run.run_id, run.token

    @property
    def returns_claim(self) -> bool:
        """Return whether another executor takes the run, instead of a result.

        Either the attempt could not begin, or the claim or the process of the task was lost and
        its effects are unknown.
        """
        is_lost = self.stop.reason() == "LOST" and self.outcome.status == "CANCELLED"
        return is_lost or self.outcome.status == "LOST" or not self.outcome.begun

    @property
    def is_handed_over(self) -> bool:
        """Return whether a detached runner may go on, so that nothing is written here."""
        return self.outcome.status == "DETACHED"

    @property
    def finished(self) -> FinishedAttempt:
        """Return the end of the attempt. Output and log must be stored."""
        run, outcome = self.assignment.run, self.outcome
        assert self.detail is not None
        status = RunStatus(outcome.status)
        return FinishedAttempt(
            self.assignment.key, run.run_id, run.token, status, outcome.retryable, self.detail
        )

    @property
    def result(self) -> AttemptResult:
        return AttemptResult(self.assignment, self.outcome, bytes(self.log.data))

    def fail_store(self, error: Unavailable) -> None:
        """End the attempt as FAILED, because its output or log is not stored."""
        self._abandoned_outcome = Outcome.failed(f"The output could not be stored: {error.message}")
        self.detail = detail_of(self.assignment, self._abandoned_outcome)

    def accept_result(self, stored: StoredResult) -> None:
        """Take over what is stored. An attempt without its announced output has failed."""
        self.detail, self.obsolete_names = stored.detail, stored.obsolete_names
        if stored.problem and self.outcome.status == "SUCCESS":
            self._abandoned_outcome = Outcome.failed(stored.problem)
            self.detail = replace_fields(self.detail, error=stored.problem)


def is_script(assignment: Assignment) -> bool:
    return _task_type(assignment) == "script"


def handover_seconds(
    assignment: Assignment, seconds_left: float, function_memory_mb: int
) -> float | None:
    """Return how long the start of a detached runner may take, or None without one.

    A detached runner takes a long run, so that no two functions wait for it.
    """
    task_type, seconds = _task_type(assignment), assignment.timeout_seconds
    if task_type in LATER_STARTING_TASK_TYPES:
        return CONTAINER_HANDOVER_SECONDS
    if task_type != "script":
        return None
    task = assignment.definition.document["task"]
    if needs_container(task, seconds, function_memory_mb):
        return CONTAINER_HANDOVER_SECONDS
    can_wait = waits_for_script(seconds) and seconds_left >= seconds + RUNNER_ANSWER_SECONDS
    # The download of an artifact takes time of its own, and no executor waits for it.
    return None if can_wait and not task.get("artifact_id") else HANDOVER_SECONDS


def _task_type(assignment: Assignment) -> str:
    return str((assignment.definition.document.get("task") or {}).get("type"))


def _cut_short_outcome(outcome: Outcome, duration: timedelta, allowed_seconds: int) -> Outcome:
    text = (
        f"Stopped after {duration.total_seconds():.0f} s, because the executor had to end; "
        f"the job allows {allowed_seconds} s"
    )
    return replace(outcome, error=text)


def take_delivery(deliveries: list[Delivery], message: Message) -> Delivery:
    """Return the first delivery of the message and remove it from `deliveries`."""
    delivery = next(delivery for delivery in deliveries if delivery.message == message)
    deliveries.remove(delivery)
    return delivery


def is_claim_old(run: Run, now: datetime) -> bool:
    """Return whether the claim may expire before its first renewal, after a slow payload read."""
    return run.attempt_at is not None and now - run.attempt_at > CLAIM_LEASE - RENEWAL_TIMEOUT
