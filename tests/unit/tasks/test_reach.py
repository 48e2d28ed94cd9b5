"""`tasksMayReach`: functions and queues by tenant, checked at a job's creation and at a call."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Runners, StopSignal
from punctual.tasks.lambda_function import InvokeTask
from punctual.tasks.reach import AllowedTargets, decode_targets, encode_targets
from punctual.tasks.sqs import QueueTask

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:"
REACH = AllowedTargets(
    {"acme": ["acme-*", "shared"], "none": [], "*": ["task-*"]},
    {"acme": ["acme-inbox.fifo"], "*": ["task-*"]},
)


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


class NoService:
    """A service of functions and queues that fails on every call."""

    def invoke(self, *_: Any) -> Any:
        raise AssertionError("a function was invoked")

    def send(self, *_: Any) -> Any:
        raise AssertionError("a message was sent")


@pytest.mark.parametrize(
    ("tenant", "function", "allowed"),
    [
        ("acme", "acme-report", True),
        ("acme", f"{ARN}acme-report:live", True),
        ("acme", "shared", True),
        ("acme", "shared-too", False),
        ("acme", "task-a", False),  # its own list replaces the default list
        ("other", "task-a", True),
        ("other", f"{ARN}task-a", True),
        ("other", "acme-report", False),
        ("none", "task-a", False),
        ("*", "acme-report", False),
    ],
)
def test_function_is_allowed_by_the_list_of_its_tenant_or_the_default_list(
    tenant: str, function: str, allowed: bool
) -> None:
    assert REACH.allows_function(tenant, function) is allowed
    problems = dict(REACH.target_problems(tenant, {"type": "lambda", "function": function}))
    assert ("function" not in problems) is allowed


@pytest.mark.parametrize(
    ("tenant", "name", "allowed"),
    [
        ("acme", "acme-inbox.fifo", True),
        ("acme", "acme-inbox", False),
        ("other", "task-inbox", True),
        ("other", "acme-inbox.fifo", False),
    ],
)
def test_queue_is_allowed_by_the_list_of_its_tenant_or_the_default_list(
    tenant: str, name: str, allowed: bool
) -> None:
    assert REACH.allows_queue(tenant, URL + name) is allowed
    problems = dict(REACH.target_problems(tenant, {"type": "sqs", "queue_url": URL + name}))
    assert ("queue_url" not in problems) is allowed


def test_function_name_of_a_placeholder_is_checked_at_the_call() -> None:
    task = {"type": "lambda", "function": "{{payload.function}}"}
    assert list(REACH.target_problems("acme", task)) == []
    outcome = run("acme", task, {"function": "task-a"})
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert "not one that tasks of this tenant may reach" in outcome.error


def test_executor_refuses_a_target_that_its_tenant_may_not_reach() -> None:
    """A job may be older than the present settings of the stage."""
    for task in (
        {"type": "lambda", "function": "acme-report"},
        {"type": "sqs", "queue_url": URL + "acme-inbox.fifo"},
    ):
        outcome = run("other", task)
        assert (outcome.status, outcome.retryable) == ("FAILED", False)
        assert "(tasksMayReach)" in outcome.error


def test_tasks_of_other_types_are_not_checked() -> None:
    for task in ({"type": "event"}, {"type": "http", "url": "https://example.com"}):
        assert list(REACH.target_problems("none", task)) == []


def test_allowed_targets_round_trip_through_the_environment() -> None:
    decoded = decode_targets(encode_targets(REACH))
    assert (dict(decoded.functions), dict(decoded.queues)) == (
        dict(REACH.functions),
        dict(REACH.queues),
    )


def run(tenant: str, task: dict[str, Any], payload: Any = None) -> Outcome:
    attempt = Attempt(
        tenant=tenant,
        job_id="job-1",
        run_id="run-1",
        name="n",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, tzinfo=UTC),
        task=task,
        payload=payload,
        timeout=timedelta(seconds=5),
        token=7,
    )
    runners: Runners = {
        "lambda": InvokeTask(NoService(), REACH.allows_function),
        "sqs": QueueTask(NoService(), REACH.allows_queue),
    }
    return AttemptRunner(runners).run(attempt, StopSignal(), NoLog())
