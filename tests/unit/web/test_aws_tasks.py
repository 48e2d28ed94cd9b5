"""The API accepts AWS tasks where they are installed, and rejects them by name elsewhere."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.lambdas.job_service.handler import DEPLOYED_FEATURES
from punctual.node.features import NODE_FEATURES
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import new_job

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"


def validate(task: dict[str, Any], features: Features) -> dict[str, Any]:
    body = json.dumps({"name": "a", "schedule_type": "IMMEDIATE", "task": task}).encode()
    return new_job(parse_object(body), NOW, features)


def field_errors(task: dict[str, Any], features: Features) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        validate(task, features)
    return {error.field: error.message for error in raised.value.errors}


@pytest.mark.parametrize(
    "task",
    [
        {"type": "lambda", "function": "report:live"},
        {"type": "lambda", "function": "{{payload.function}}"},
        {"type": "sqs", "queue_url": QUEUE},
        {"type": "sqs", "queue_url": "{{secret:queue}}"},
        {"type": "http", "url": "https://example.com/", "headers": {"X": "{{secret:a/b}}"}},
        {"type": "event", "detail_type": "{{secret:kind}}"},
    ],
)
def test_task_installed_on_aws_is_accepted(task: dict[str, Any]) -> None:
    assert validate(task, DEPLOYED_FEATURES)["task"] == task


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ({"type": "lambda"}, {"task.function"}),
        ({"type": "lambda", "function": ""}, {"task.function"}),
        ({"type": "lambda", "function": "x" * 3_000}, {"task.function"}),
        ({"type": "lambda", "function": 3, "more": 1}, {"task.function", "task.more"}),
        ({"type": "lambda", "function": "punctual-dev-planner"}, {"task.function"}),
        ({"type": "lambda", "function": "{{nothing}}"}, {"task.function"}),
        ({"type": "sqs", "function": "x"}, {"task.queue_url", "task.function"}),
        ({"type": "sqs", "queue_url": "orders"}, {"task.queue_url"}),
        ({"type": "sqs", "queue_url": QUEUE.replace("orders", "punctual-x")}, {"task.queue_url"}),
        ({"type": "sqs", "queue_url": "{{secret:}}"}, {"task.queue_url"}),
        ({"type": "event", "detail_type": "Run State Change"}, {"task.detail_type"}),
        ({"type": "event", "detail_type": "job state change "}, {"task.detail_type"}),
        ({"type": "container", "image": "busybox"}, {"task.type"}),
    ],
)
def test_wrong_task_error_names_every_field(task: dict[str, Any], fields: set[str]) -> None:
    assert set(field_errors(task, DEPLOYED_FEATURES)) == fields


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"type": "lambda", "function": "report"}, "task.type"),
        ({"type": "sqs", "queue_url": QUEUE}, "task.type"),
        ({"type": "event", "detail_type": "Job State Change"}, "task.detail_type"),
    ],
)
def test_node_refuses_tasks_that_it_does_not_have(task: dict[str, Any], field: str) -> None:
    assert field_errors(task, NODE_FEATURES) == {field: field_errors(task, NODE_FEATURES)[field]}
    assert field_errors(task, NODE_FEATURES)[field].endswith(
        ("not in this installation yet", "is reserved for Punctual")
    )
