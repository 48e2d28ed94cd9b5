"""Decides what follows for a run from what ECS says about its task. No I/O and no clock.

The lease of the run decides, not the watcher. A living task is renewed, and stopped only for a
cancel request, its timeout, its start deadline, or a claim that another attempt has replaced.
"""

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.tasks.container.sizes import FargateSize
from punctual.tasks.container.task_report import RUNNING_STATUS, UNKNOWN_STATUS, TaskReport
from punctual.tasks.contract import Outcome

START_DEADLINE = timedelta(minutes=5)  # ECS itself gives up after 30 minutes
SWEEP_INTERVAL = timedelta(seconds=60)
MISSED_SWEEPS = 3
SWEEP_GRACE = timedelta(seconds=60)
# The lease of a run in a container. A watcher that misses some sweeps loses no living run.
CONTAINER_LEASE = SWEEP_INTERVAL * MISSED_SWEEPS + SWEEP_GRACE
# A start without an answer is settled by then: no call of an executor takes longer.
START_CALL_LIMIT = timedelta(seconds=60)

# A runner inside ends the work at its timeout by itself. It then has the time to report the end:
# to stop the work, and to store the output, which has up to 5 GB in a container of a user.
RUNNER_END_LIMIT = timedelta(minutes=5)
UPLOAD_END_LIMIT = timedelta(minutes=45)

# Why Punctual stops a task.
STOP_FOR_CANCEL, STOP_FOR_TIMEOUT = "CANCEL", "TIMEOUT"
STOP_FOR_START, STOP_FOR_LOST = "START", "LOST"

_CONTAINER_ENDED = "EssentialContainerExited"
_START_FAILED = "TaskFailedToStart"
_STOPPED_BY_CALL = "UserInitiated"
# The end of a task by its platform, and how a person reads it. None of these is a job's failure.
_PLATFORM_ENDS = {
    "SpotInterruption": "Fargate took back the Spot capacity of the task",
    "TerminationNotice": "Fargate ended the host of the task",
    "InfrastructureHealth": "The host of the task failed",
    "ServiceSchedulerInitiated": "ECS stopped the task",
}
# Words of a failed start that the platform causes, not the image or the job.
_PLATFORM_START_WORDS = (
    "capacity is unavailable",
    "network interface provisioning",
    "internal error",
)
_MEMORY_WORDS = ("outofmemory", "out of memory")
KILLED_EXIT_CODE = 137
_START_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d{1,4}-\d{1,12}")


class Container(NamedTuple):
    """A task that Punctual started for an attempt.

    `arn` is empty until ECS has answered the start. `stop_reason` is set with the first request to
    stop the task. With `is_script` our runner is inside, and nothing has begun before it binds the
    claim.
    """

    start_id: str
    tenant: str
    job_id: str
    run_id: str
    attempt_number: int
    token: int
    size: FargateSize
    timeout_seconds: int
    requested_at: datetime
    keeps_log: bool = True
    arn: str = ""
    running_at: datetime | None = None
    stop_reason: str = ""
    is_script: bool = False


class ClaimStatus(NamedTuple):
    """What the job state says of an attempt: whether its claim still holds, a cancel request, and
    whether a runner inside the container has bound the claim."""

    is_held: bool = True
    is_cancelled: bool = False
    has_runner: bool = False


HELD = ClaimStatus()


class Wait(NamedTuple):
    """Nothing to do but to keep the lease."""


class MarkRunning(NamedTuple):
    at: datetime


class StopTask(NamedTuple):
    reason: str


class FinishRun(NamedTuple):
    outcome: Outcome


class LoseAttempt(NamedTuple):
    """The platform ended the attempt. It gets a number, and the next one starts at once."""

    error: str


class ReturnRun(NamedTuple):
    """The platform started no container. The run returns to its queue, and this is no attempt."""

    reason: str


class Forget(NamedTuple):
    """The claim belongs to another attempt by now, and the task has ended."""


Step = Wait | MarkRunning | StopTask | FinishRun | LoseAttempt | ReturnRun | Forget


def start_id_of(run_id: str, attempt_number: int, token: int) -> str:
    """Return the client token of a start: the run, the attempt, and the claim.

    ECS answers the same token with the same task for a day, also if that task is dead. A repeated
    call finds the task of a lost answer, and another attempt always gets a new task.

    >>> start_id_of("0190a", 2, 17)
    '0190a-2-17'
    """
    return f"{run_id}-{attempt_number}-{token}"


def is_start_id(text: str) -> bool:
    """Return whether Punctual started a task with this id.

    >>> is_start_id("0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee-2-17"), is_start_id("ecs-svc/123")
    (True, False)
    """
    return _START_ID.fullmatch(text) is not None


def renews_lease(container: Container, now: datetime) -> bool:
    """Return whether the lease is renewed: ECS knows the task, or its start deadline is ahead."""
    return bool(container.arn) or now < container.requested_at + START_DEADLINE


def report_without_news(container: Container) -> TaskReport:
    """Return a report for a task while ECS does not answer. It may run, so it is not stopped."""
    return TaskReport(container.arn, container.start_id, 0, UNKNOWN_STATUS)


def next_step(
    container: Container, report: TaskReport | None, now: datetime, claim: ClaimStatus = HELD
) -> Step:
    """Return what follows. `report` is None if ECS does not know the task."""
    if report is None:
        return _step_without_task(container, now, claim)
    if report.is_stopped:
        return _end_step(container, report, claim) if claim.is_held else Forget()
    stop_reason = _stop_reason(container, report, now, claim)
    if stop_reason:
        return StopTask(container.stop_reason or stop_reason)
    if report.status == RUNNING_STATUS and container.running_at is None:
        return MarkRunning(report.started_at or now)
    return Wait()


def _step_without_task(container: Container, now: datetime, claim: ClaimStatus) -> Step:
    """Wait while ECS may still learn of the task. Its answers follow a start after seconds."""
    if now < container.requested_at + START_DEADLINE:
        return Wait()
    if not claim.is_held:
        return Forget()
    text = "ECS does not know the task: how it ended is not known"
    has_not_begun = container.is_script and not claim.has_runner
    return ReturnRun(text) if has_not_begun else LoseAttempt(text)


def _stop_reason(
    container: Container, report: TaskReport, now: datetime, claim: ClaimStatus
) -> str:
    if not claim.is_held:
        return STOP_FOR_LOST
    if claim.is_cancelled:
        return STOP_FOR_CANCEL
    running_at = container.running_at or report.started_at
    if running_at is None:
        is_late = now >= container.requested_at + START_DEADLINE
        is_starting = report.status not in (RUNNING_STATUS, UNKNOWN_STATUS)
        return STOP_FOR_START if is_late and is_starting else ""
    limit = timedelta(seconds=container.timeout_seconds) + _grace_of_runner(container, claim)
    return STOP_FOR_TIMEOUT if now >= running_at + limit else ""


def _grace_of_runner(container: Container, claim: ClaimStatus) -> timedelta:
    if container.is_script:
        return RUNNER_END_LIMIT
    return UPLOAD_END_LIMIT if claim.has_runner else timedelta()


def _end_step(container: Container, report: TaskReport, claim: ClaimStatus) -> Step:
    if container.is_script and not claim.has_runner:
        return _unbound_end_step(container, report)
    if claim.has_runner:
        return _silent_end_step(container, report)
    if report.stop_code in _PLATFORM_ENDS:
        return LoseAttempt(_with_words(_PLATFORM_ENDS[report.stop_code], report))
    if report.stop_code == _CONTAINER_ENDED and report.exit_code is not None:
        return FinishRun(_exit_outcome(container, report))
    if container.stop_reason:
        return _stopped_step(container, report)
    if report.stop_code == _STOPPED_BY_CALL:
        return FinishRun(
            _failed(_with_words("The task was stopped outside Punctual", report), report)
        )
    if report.stop_code == _START_FAILED:
        return _failed_start_step(container, report)
    # An exit code that ECS does not know is never a success.
    return FinishRun(
        _failed(_with_words("The container ended without an exit code", report), report)
    )


def _unbound_end_step(container: Container, report: TaskReport) -> Step:
    """Return the end of a task without a bound runner: no script has begun."""
    if container.stop_reason == STOP_FOR_LOST:
        return Forget()
    if container.stop_reason == STOP_FOR_CANCEL:
        return FinishRun(Outcome.stopped("CANCEL"))
    return ReturnRun(_with_words(_late_start_text(container), report))


def _late_start_text(container: Container) -> str:
    if container.stop_reason == STOP_FOR_START:
        return f"The container did not start in {START_DEADLINE // timedelta(minutes=1)} minutes"
    return "The container ended before its script began"


def _silent_end_step(container: Container, report: TaskReport) -> Step:
    """Return the end of a task with a bound runner, which did not finish the run."""
    if container.stop_reason in (STOP_FOR_LOST, STOP_FOR_CANCEL, STOP_FOR_TIMEOUT):
        return _stopped_step(container, report)
    if report.stop_code in _PLATFORM_ENDS:
        return LoseAttempt(_with_words(_PLATFORM_ENDS[report.stop_code], report))
    code = "" if report.exit_code is None else f", with exit code {report.exit_code}"
    text = f"The container ended before its runner reported the result{code}"
    return LoseAttempt(_with_words(text, report))


def _failed_start_step(container: Container, report: TaskReport) -> Step:
    """Return the run if the platform lacked something. A bad image or definition fails the run."""
    text = _with_words("The container could not be started", report)
    words = report.words.lower()
    if any(cause in words for cause in _PLATFORM_START_WORDS):
        return _unstarted_step(container, report, text)
    return FinishRun(_failed(text, report))


def _unstarted_step(container: Container, report: TaskReport, text: str) -> Step:
    """Return the run, unless the container did begin."""
    has_begun = container.running_at is not None or report.started_at is not None
    return LoseAttempt(text) if has_begun else ReturnRun(text)


def _stopped_step(container: Container, report: TaskReport) -> Step:
    """Return the end of a task that Punctual stopped."""
    if container.stop_reason == STOP_FOR_LOST:
        return Forget()
    if container.stop_reason == STOP_FOR_START:
        if report.stop_code == _START_FAILED:  # it failed before the stop took effect
            return _failed_start_step(container, report)
        text = _with_words(_late_start_text(container), report)
        return _unstarted_step(container, report, text)
    if container.stop_reason == STOP_FOR_TIMEOUT:
        outcome = Outcome.timed_out(timedelta(seconds=container.timeout_seconds))
    else:
        outcome = Outcome.stopped("CANCEL")
    return FinishRun(_with_exit_code(outcome, report))


def _exit_outcome(container: Container, report: TaskReport) -> Outcome:
    code = report.exit_code
    if code == 0:
        return Outcome("SUCCESS", exit_code=0)
    if code != KILLED_EXIT_CODE:
        return _failed(f"Exit code {code}", report)
    words = report.words.lower()
    if any(evidence in words for evidence in _MEMORY_WORDS):
        text = f"Exit code {code}: the container used more than {container.size.memory_mb:,} MB"
    else:
        text = f"Exit code {code}: killed by SIGKILL, and ECS names no lack of memory"
    return _failed(text, report)


def _failed(text: str, report: TaskReport) -> Outcome:
    return Outcome("FAILED", text, exit_code=report.exit_code)


def _with_exit_code(outcome: Outcome, report: TaskReport) -> Outcome:
    return Outcome(outcome.status, outcome.error, outcome.retryable, exit_code=report.exit_code)


def _with_words(text: str, report: TaskReport) -> str:
    return f"{text}: {report.words}" if report.words else text
