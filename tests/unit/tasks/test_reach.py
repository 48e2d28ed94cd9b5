"""`tasksMayReach`: functions and queues by tenant, before a job is taken and before a call."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.tasks.contract import Attempt, Outcome, Runners, StopSignal
from punctual.tasks.lambda_function import InvokeTask
from punctual.tasks.reach import AllowedTargets, decode_targets, encode_targets
from punctual.tasks.registry import Registry
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


class Nothing:
    """Neither a function nor a queue is reached."""

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
        ("acme", "task-a", False),  # its own list stands in place of the others'
        ("other", "task-a", True),
        ("other", f"{ARN}task-a", True),
        ("other", "acme-report", False),
        ("none", "task-a", False),
        ("*", "acme-report", False),
    ],
)
def test_a_function_is_reached_by_the_tenants_own_list_or_that_for_the_rest(
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
def test_a_queue_likewise(tenant: str, name: str, allowed: bool) -> None:
    assert REACH.allows_queue(tenant, URL + name) is allowed
    problems = dict(REACH.target_problems(tenant, {"type": "sqs", "queue_url": URL + name}))
    assert ("queue_url" not in problems) is allowed


def test_what_a_placeholder_fills_in_is_judged_when_it_is_filled_in() -> None:
    task = {"type": "lambda", "function": "{{payload.function}}"}
    assert list(REACH.target_problems("acme", task)) == []
    outcome = run("acme", task, {"function": "task-a"})
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert "not one that tasks of this tenant may reach" in outcome.error


def test_an_executor_calls_nothing_that_its_tenant_may_not_reach() -> None:
    """A job may have been taken before the stage was changed."""
    for task in (
        {"type": "lambda", "function": "acme-report"},
        {"type": "sqs", "queue_url": URL + "acme-inbox.fifo"},
    ):
        outcome = run("other", task)
        assert (outcome.status, outcome.retryable) == ("FAILED", False)
        assert "(tasksMayReach)" in outcome.error


def test_tasks_of_other_types_are_not_asked_about() -> None:
    for task in ({"type": "event"}, {"type": "http", "url": "https://example.com"}):
        assert list(REACH.target_problems("none", task)) == []


def test_it_goes_through_a_functions_environment_and_back() -> None:
    again = decode_targets(encode_targets(REACH))
    assert (dict(again.functions), dict(again.queues)) == (
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
        "lambda": InvokeTask(Nothing(), REACH.allows_function),
        "sqs": QueueTask(Nothing(), REACH.allows_queue),
    }
    return Registry(runners).run(attempt, StopSignal(), NoLog())
