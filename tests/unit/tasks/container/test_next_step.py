"""What follows for a run, case by case, from what ECS says about its task."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.leases import RENEWAL_TIMEOUT, RUN_LEASE
from punctual.tasks.container.next_step import (
    CONTAINER_LEASE,
    MISSED_SWEEPS,
    RUNNER_END_LIMIT,
    START_DEADLINE,
    SWEEP_INTERVAL,
    UPLOAD_END_LIMIT,
    ClaimStatus,
    Container,
    FinishRun,
    Forget,
    LoseAttempt,
    MarkRunning,
    ReturnRun,
    Step,
    StopTask,
    Wait,
    next_step,
    report_without_news,
    start_id_of,
)
from punctual.tasks.container.sizes import FargateSize
from punctual.tasks.container.task_report import TaskReport, parse_report
from tests.support.builders import NOON

SECOND = timedelta(seconds=1)
LOST, CANCELLED = ClaimStatus(is_held=False), ClaimStatus(is_cancelled=True)


def container(**fields: Any) -> Container:
    defaults: dict[str, Any] = {
        "start_id": "run-1-7",
        "tenant": "acme",
        "job_id": "job",
        "run_id": "run",
        "attempt_number": 1,
        "token": 7,
        "size": FargateSize(0.25, 512),
        "timeout_seconds": 600,
        "requested_at": NOON,
        "arn": "arn:task",
    }
    return Container(**{**defaults, **fields})


def report(status: str = "RUNNING", **fields: Any) -> TaskReport:
    return TaskReport(
        **{"arn": "arn:task", "start_id": "run-1-7", "version": 3, **fields}, status=status
    )


def exited(code: int | None, **fields: Any) -> TaskReport:
    return report("STOPPED", stop_code="EssentialContainerExited", exit_code=code, **fields)


def stopped(stop_code: str, **fields: Any) -> TaskReport:
    return report("STOPPED", stop_code=stop_code, **fields)


def outcome_of(step: Step) -> tuple[str, str, int | None]:
    assert isinstance(step, FinishRun)
    return step.outcome.status, step.outcome.error, step.outcome.exit_code


@pytest.mark.parametrize("status", ["PROVISIONING", "PENDING", "ACTIVATING"])
def test_task_that_starts_is_waited_for_until_its_deadline(status: str) -> None:
    just_before = NOON + START_DEADLINE - SECOND
    assert next_step(container(), report(status), just_before) == Wait()
    assert next_step(container(), report(status), just_before + SECOND) == StopTask("START")


def test_start_deadline_is_far_below_that_of_ecs() -> None:
    assert timedelta(minutes=5) == START_DEADLINE


def test_task_that_never_left_pending_is_no_attempt() -> None:
    ended = stopped("UserInitiated", stopped_reason="Punctual: START")
    step = next_step(container(stop_reason="START"), ended, NOON)
    assert step == ReturnRun("The container did not start in 5 minutes: Punctual: START")


def test_container_that_began_in_spite_of_its_deadline_is_an_attempt() -> None:
    ended = stopped("UserInitiated", started_at=NOON)
    for begun in (container(stop_reason="START"), container(stop_reason="START", running_at=NOON)):
        assert isinstance(next_step(begun, ended, NOON), LoseAttempt)


def test_image_that_fails_after_the_start_deadline_is_the_failure_of_its_job() -> None:
    ended = stopped("TaskFailedToStart", stopped_reason="CannotPullContainerError: denied")
    status, error, _ = outcome_of(next_step(container(stop_reason="START"), ended, NOON))
    assert status == "FAILED"
    assert error == "The container could not be started: CannotPullContainerError: denied"


@pytest.mark.parametrize(
    "words",
    [
        "Timeout waiting for network interface provisioning to complete.",
        "Capacity is unavailable at this time.",
        "Fargate: internal error",
    ],
)
@pytest.mark.parametrize("stop_reason", ["", "START"])
def test_start_that_fails_for_want_of_the_platform_is_no_attempt(
    words: str, stop_reason: str
) -> None:
    ended = stopped("TaskFailedToStart", stopped_reason=words)
    step = next_step(container(stop_reason=stop_reason), ended, NOON)
    assert step == ReturnRun(f"The container could not be started: {words}")
    begun = container(stop_reason=stop_reason, running_at=NOON)
    assert isinstance(next_step(begun, ended, NOON), LoseAttempt)


def test_running_task_marks_its_run_once() -> None:
    began = report(started_at=NOON + SECOND)
    assert next_step(container(), began, NOON + 9 * SECOND) == MarkRunning(NOON + SECOND)
    assert next_step(container(running_at=NOON + SECOND), began, NOON + 9 * SECOND) == Wait()
    assert next_step(container(), report(), NOON + 9 * SECOND) == MarkRunning(NOON + 9 * SECOND)


def test_timeout_counts_from_the_start_of_the_container() -> None:
    running = container(running_at=NOON + 240 * SECOND)
    assert next_step(running, report(), NOON + 839 * SECOND) == Wait()
    assert next_step(running, report(), NOON + 840 * SECOND) == StopTask("TIMEOUT")


def test_long_start_that_runs_at_last_is_not_stopped() -> None:
    began = report(started_at=NOON + START_DEADLINE - SECOND)
    late = NOON + START_DEADLINE + SECOND
    assert next_step(container(), began, late) == MarkRunning(began.started_at or NOON)
    assert next_step(container(), report(), late) == MarkRunning(late)


@pytest.mark.parametrize(
    ("claim", "reason"), [(CANCELLED, "CANCEL"), (LOST, "LOST")], ids=["cancelled", "lost"]
)
def test_task_without_a_right_to_run_is_stopped(claim: ClaimStatus, reason: str) -> None:
    for status in ("PENDING", "RUNNING"):
        assert next_step(container(), report(status), NOON, claim) == StopTask(reason)


def test_repeated_stop_keeps_its_first_reason() -> None:
    stopping = container(stop_reason="TIMEOUT", running_at=NOON)
    assert next_step(stopping, report(), NOON, CANCELLED) == StopTask("TIMEOUT")


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (exited(0), ("SUCCESS", "", 0)),
        (exited(3), ("FAILED", "Exit code 3", 3)),
        (
            exited(137),
            ("FAILED", "Exit code 137: killed by SIGKILL, and ECS names no lack of memory", 137),
        ),
        (
            exited(137, reason="OutOfMemoryError: Container killed due to memory usage"),
            ("FAILED", "Exit code 137: the container used more than 512 MB", 137),
        ),
        (
            exited(None, reason="CannotPullContainerError: not found"),
            (
                "FAILED",
                "The container ended without an exit code: CannotPullContainerError: not found",
                None,
            ),
        ),
        (
            stopped("TaskFailedToStart", stopped_reason="CannotPullContainerError: denied"),
            (
                "FAILED",
                "The container could not be started: CannotPullContainerError: denied",
                None,
            ),
        ),
        (
            stopped("UserInitiated", stopped_reason="by a person", exit_code=143),
            ("FAILED", "The task was stopped outside Punctual: by a person", 143),
        ),
        (
            stopped(""),
            ("FAILED", "The container ended without an exit code", None),
        ),
    ],
)
def test_end_of_a_task_is_the_end_of_its_attempt(
    ended: TaskReport, outcome: tuple[str, str, int | None]
) -> None:
    assert outcome_of(next_step(container(running_at=NOON), ended, NOON)) == outcome


@pytest.mark.parametrize(
    ("stop_code", "words", "text"),
    [
        (
            "SpotInterruption",
            "Your Spot Task was interrupted.",
            "Fargate took back the Spot capacity of the task: Your Spot Task was interrupted.",
        ),
        ("TerminationNotice", "", "Fargate ended the host of the task"),
        ("InfrastructureHealth", "", "The host of the task failed"),
    ],
)
def test_end_by_the_platform_is_an_attempt_of_its_own(
    stop_code: str, words: str, text: str
) -> None:
    ended = stopped(stop_code, stopped_reason=words, exit_code=0)
    assert next_step(container(running_at=NOON), ended, NOON) == LoseAttempt(text)


@pytest.mark.parametrize(
    ("stop_reason", "code", "outcome"),
    [
        ("TIMEOUT", 143, ("TIMED_OUT", "Timed out after 600 s", 143)),
        ("TIMEOUT", None, ("TIMED_OUT", "Timed out after 600 s", None)),
        ("CANCEL", 137, ("CANCELLED", "Cancelled", 137)),
    ],
)
def test_task_that_punctual_stopped_ends_with_the_reason(
    stop_reason: str, code: int | None, outcome: tuple[str, str, int | None]
) -> None:
    ended = stopped("UserInitiated", exit_code=code)
    assert outcome_of(next_step(container(stop_reason=stop_reason), ended, NOON)) == outcome


def test_container_that_ended_before_the_stop_keeps_its_result() -> None:
    step = next_step(container(stop_reason="TIMEOUT"), exited(0), NOON)
    assert outcome_of(step) == ("SUCCESS", "", 0)


def test_end_of_a_task_without_claim_changes_nothing() -> None:
    assert next_step(container(), exited(0), NOON, LOST) == Forget()
    assert next_step(container(stop_reason="LOST"), stopped("UserInitiated"), NOON) == Forget()


def test_task_that_ecs_does_not_know_is_lost_after_the_start_deadline() -> None:
    late = NOON + START_DEADLINE
    assert next_step(container(), None, late - SECOND) == Wait()
    assert isinstance(next_step(container(), None, late), LoseAttempt)
    assert next_step(container(), None, late, LOST) == Forget()


def test_task_is_never_stopped_for_want_of_news() -> None:
    late = NOON + 2 * START_DEADLINE
    assert next_step(container(), report_without_news(container()), late) == Wait()
    running = container(running_at=NOON)
    assert next_step(running, report_without_news(running), late) == StopTask("TIMEOUT")


def test_lease_of_a_container_outlives_the_sweeps_that_a_watcher_may_miss() -> None:
    assert CONTAINER_LEASE > SWEEP_INTERVAL * MISSED_SWEEPS
    assert CONTAINER_LEASE > RUN_LEASE + RENEWAL_TIMEOUT


@pytest.mark.parametrize("silence", [RUN_LEASE, 2 * RUN_LEASE, CONTAINER_LEASE - SECOND])
def test_frozen_process_in_a_living_task_is_not_stopped(silence: timedelta) -> None:
    running = container(running_at=NOON)
    assert next_step(running, report(started_at=NOON), NOON + silence) == Wait()


def test_start_id_differs_by_attempt_and_by_claim() -> None:
    ids = {start_id_of("run", number, token) for number in (1, 2) for token in (7, 8)}
    assert len(ids) == 4
    assert len(start_id_of("0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee", 101, 999_999_999)) <= 64


def test_report_reads_an_event_and_an_answer_alike() -> None:
    event = {
        "taskArn": "arn:task",
        "startedBy": "run-1-7",
        "version": 5,
        "lastStatus": "STOPPED",
        "stopCode": "EssentialContainerExited",
        "stoppedReason": "Essential container in task exited",
        "startedAt": "2026-03-02T12:00:00.5Z",
        "stoppedAt": "2026-03-02T12:00:03Z",
        "containers": [
            {"name": "aws-guardduty-agent", "exitCode": 1},
            {"name": "main", "exitCode": 0, "reason": ""},
        ],
    }
    parsed = parse_report(event)
    answer = {
        **event,
        "startedAt": parsed.started_at,
        "stoppedAt": parsed.stopped_at,
    }
    assert parse_report(answer) == parsed
    assert (parsed.exit_code, parsed.version) == (0, 5)
    assert parsed.started_at == NOON + SECOND / 2


def test_report_of_a_task_with_empty_containers_has_no_exit_code() -> None:
    parsed = parse_report(
        {
            "taskArn": "arn:task",
            "lastStatus": "STOPPED",
            "stopCode": "TaskFailedToStart",
            "stoppedReason": "ResourceInitializationError: unable to pull secrets",
            "containers": [],
        }
    )
    assert outcome_of(next_step(container(), parsed, NOON)) == (
        "FAILED",
        "The container could not be started: ResourceInitializationError: unable to pull secrets",
        None,
    )


BOUND = ClaimStatus(has_runner=True)


@pytest.mark.parametrize(
    "ended",
    [
        exited(0),
        exited(64),
        stopped("SpotInterruption"),
        stopped("TaskFailedToStart", stopped_reason="CannotPullContainerError: denied"),
        stopped("UserInitiated", stopped_reason="by hand"),
    ],
)
def test_script_that_never_began_is_no_attempt(ended: TaskReport) -> None:
    script = container(is_script=True, running_at=NOON)
    assert isinstance(next_step(script, ended, NOON), ReturnRun)


def test_script_whose_task_ecs_does_not_know_is_an_attempt_only_if_it_began() -> None:
    script, late = container(is_script=True), NOON + START_DEADLINE
    assert isinstance(next_step(script, None, late), ReturnRun)
    assert isinstance(next_step(script, None, late, BOUND), LoseAttempt)


@pytest.mark.parametrize("is_script", [True, False])
@pytest.mark.parametrize("ended", [exited(0), exited(1), stopped("SpotInterruption")])
def test_end_without_the_finish_of_its_runner_is_a_lost_attempt(
    ended: TaskReport, is_script: bool
) -> None:
    assert isinstance(next_step(container(is_script=is_script), ended, NOON, BOUND), LoseAttempt)


@pytest.mark.parametrize(("reason", "status"), [("CANCEL", "CANCELLED"), ("TIMEOUT", "TIMED_OUT")])
def test_runner_that_punctual_stopped_ends_with_the_reason(reason: str, status: str) -> None:
    step = next_step(container(is_script=True, stop_reason=reason), exited(137), NOON, BOUND)
    assert outcome_of(step)[0] == status


@pytest.mark.parametrize(
    ("is_script", "limit"), [(True, RUNNER_END_LIMIT), (False, UPLOAD_END_LIMIT)]
)
def test_runner_has_time_to_report_its_timeout(is_script: bool, limit: timedelta) -> None:
    running = container(is_script=is_script, running_at=NOON)
    ends_at = NOON + timedelta(seconds=running.timeout_seconds) + limit
    assert next_step(running, report(), ends_at - SECOND, BOUND) == Wait()
    assert next_step(running, report(), ends_at, BOUND) == StopTask("TIMEOUT")
