"""The checks of tasks."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.node.features import NODE_FEATURES
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import new_job

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ALL_FEATURES = NODE_FEATURES._replace(
    task_types=frozenset({"event", "http", "lambda", "sqs", "script", "container"}),
    artifacts=True,
    secrets=True,
)


def validate(task: Any, features: Features) -> dict[str, Any]:
    body = json.dumps({"name": "a", "schedule_type": "IMMEDIATE", "task": task}).encode()
    return new_job(parse_object(body), NOW, features)


def field_errors(task: Any, features: Features = NODE_FEATURES) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        validate(task, features)
    return {error.field: error.message for error in raised.value.errors}


def http(**fields: Any) -> dict[str, Any]:
    return {"type": "http", "url": "https://example.com/", **fields}


def script(**fields: Any) -> dict[str, Any]:
    return {"type": "script", "runtime": "python", "code": "print(1)", **fields}


def program(**fields: Any) -> dict[str, Any]:
    return {"type": "script", "interpreter": "/srv/venv/bin/python", **fields}


@pytest.mark.parametrize(
    "task",
    [
        {"type": "event"},
        {"type": "event", "detail_type": "Order {{payload.id}}"},
        http(),
        http(
            method="PUT",
            headers={"X-Trace": "{{run_id}}", "Authorization": "Bearer x"},
            body={"any": ["json", None, 1.5]},
            expect_status=[200, "300-399"],
            follow_redirects=5,
        ),
        http(url="https://example.com/{{payload.path}}", body="text"),
        http(url="{{payload.url}}"),
        http(url="http://127.0.0.1:9000/hook"),
        script(),
        script(runtime="bash", args=["-x", "{{attempt}}"], env={"MODE": "fast"}),
        script(runtime="node", resources={"cpu": 0.5, "memory_mb": 64}),
        script(code="x" * 65_536),
        script(interpreter="/srv/venv/bin/python", working_directory="/srv/app"),
        program(runtime="python", args=["-m", "mypackage"]),
        program(runtime="binary"),
    ],
)
def test_valid_task_is_accepted_as_sent(task: dict[str, Any]) -> None:
    assert validate(task, NODE_FEATURES)["task"] == task


@pytest.mark.parametrize(
    "task",
    [
        {"type": "lambda", "function": "arn:aws:lambda:eu-west-1:123456789012:function:x"},
        {"type": "sqs", "queue_url": "https://sqs.eu-west-1.amazonaws.com/123456789012/q"},
        {"type": "container", "image": "busybox", "command": ["true"], "env": {"A": "b"}},
    ],
)
def test_task_type_is_accepted_only_where_it_is_installed(task: dict[str, Any]) -> None:
    kind = task["type"]
    hint = (
        "offered only on AWS, in a stage that has `containers` on"
        if kind == "container"
        else "not in this installation yet"
    )
    assert field_errors(task) == {"task.type": f"{kind} tasks are {hint}"}
    assert validate(task, ALL_FEATURES)["task"] == task


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ("event", {"task"}),
        ([], {"task"}),
        ({}, {"task.type"}),
        ({"type": None}, {"task.type"}),
        ({"type": "cobol"}, {"task.type"}),
        ({"type": ["event"]}, {"task.type"}),
        ({"type": "event", "url": "x"}, {"task.url"}),
        ({"type": "event", "detail_type": ""}, {"task.detail_type"}),
        ({"type": "event", "detail_type": "x" * 129}, {"task.detail_type"}),
        ({"type": "http"}, {"task.url"}),
        (http(url=""), {"task.url"}),
        (http(url="ftp://example.com"), {"task.url"}),
        (http(url="https://user:pw@example.com"), {"task.url"}),
        (http(url="https://"), {"task.url"}),
        (http(url="https://example.com/" + "x" * 8_192), {"task.url"}),
        (http(method="post"), {"task.method"}),
        (http(method="CONNECT"), {"task.method"}),
        (http(headers={"a b": "x"}), {"task.headers.a b"}),
        (http(headers={"X": "a\r\nY: b"}), {"task.headers.X"}),
        (http(headers={"X": 5}), {"task.headers.X"}),
        (http(headers={"Host": "example.org"}), {"task.headers.Host"}),
        (http(headers={"content-length": "5"}), {"task.headers.content-length"}),
        (http(headers={f"H{number}": "x" for number in range(51)}), {"task.headers"}),
        (http(headers={"X": "x" * 8_192}), {"task.headers"}),
        (http(expect_status=99), {"task.expect_status"}),
        (http(expect_status="299-200"), {"task.expect_status"}),
        (http(expect_status=[]), {"task.expect_status"}),
        (http(expect_status=True), {"task.expect_status"}),
        (http(expect_status={"from": 200}), {"task.expect_status"}),
        (http(follow_redirects=6), {"task.follow_redirects"}),
        (http(url="https://example.com/{{nothing}}"), {"task.url"}),
        ({"type": "script"}, {"task.runtime", "task.code"}),
        (script(runtime="perl"), {"task.runtime"}),
        (script(code=None), {"task.code"}),
        (script(code="x" * 65_537), {"task.code"}),
        (script(code="ü" * 32_769), {"task.code"}),
        (script(artifact_id="abc"), {"task.artifact_id"}),
        ({"type": "script", "runtime": "binary"}, {"task.artifact_id"}),
        (script(args=["a", 1]), {"task.args.1"}),
        (script(env={"PUNCTUAL_RUN_ID": "x"}), {"task.env.PUNCTUAL_RUN_ID"}),
        (script(env={"A=B": "x"}), {"task.env.A=B"}),
        (script(env={"": "x"}), {"task.env."}),
        (script(env={"A": None}), {"task.env.A"}),
        (script(resources={"memory_mb": 63}), {"task.resources.memory_mb"}),
        (script(resources={"cpu": 0}), {"task.resources.cpu"}),
        (script(resources={"gpu": 1}), {"task.resources.gpu"}),
    ],
)
def test_invalid_task_is_refused_on_its_field(task: Any, fields: set[str]) -> None:
    assert set(field_errors(task)) == fields


def test_script_has_code_or_an_artifact() -> None:
    binary = {"type": "script", "runtime": "binary", "artifact_id": "a"}
    without = NODE_FEATURES._replace(artifacts=False)
    assert set(field_errors(binary, without)) == {"task.runtime", "task.artifact_id"}
    assert set(field_errors({"type": "script", "runtime": "binary"}, without)) == {"task.runtime"}
    assert validate(binary, ALL_FEATURES)["task"] == binary
    assert set(field_errors({"type": "script", "runtime": "binary"}, ALL_FEATURES)) == {
        "task.artifact_id"
    }
    assert set(field_errors({**binary, "code": "x"}, ALL_FEATURES)) == {"task.code"}
    assert set(field_errors(script(artifact_id="a"), ALL_FEATURES)) == {"task.artifact_id"}


def test_secret_placeholder_is_accepted_where_secrets_are_installed() -> None:
    task = http(headers={"Authorization": "Bearer {{secret:api/token}}"})
    assert validate(task, ALL_FEATURES)["task"] == task


@pytest.mark.parametrize(
    ("task", "field"),
    [
        (http(body={"a": ["{{secret:token}}"]}), "task.body.a.0"),
        (http(headers={"Authorization": "{{ secret:token }}"}), "task.headers.Authorization"),
    ],
)
def test_secret_placeholder_is_refused_without_secrets(task: Any, field: str) -> None:
    errors = field_errors(task, NODE_FEATURES._replace(secrets=False))
    assert errors == {field: "secrets are not in this installation yet"}


def test_code_is_not_searched_for_placeholders() -> None:
    task = script(code="print('{{secret:x}} {{nothing}}')")
    assert validate(task, NODE_FEATURES)["task"] == task


def test_task_error_names_every_wrong_field() -> None:
    task = http(url=5, method=3, headers={"a b": "x", "Y": 3, "Host": "h"}, expect_status=7)
    assert set(field_errors(task)) == {
        "task.url",
        "task.method",
        "task.headers.a b",
        "task.headers.Y",
        "task.headers.Host",
        "task.expect_status",
    }


def test_task_type_refused_to_one_tenant_has_the_reason() -> None:
    def refuse(tenant: str, task_type: str) -> str:
        return "not for you" if (tenant, task_type) == ("acme", "script") else ""

    features = NODE_FEATURES._replace(refuse_task_type=refuse)
    assert field_errors(script(), features.for_tenant("acme")) == {"task.type": "not for you"}
    assert validate(script(), features.for_tenant("local"))
    assert validate(http(), features.for_tenant("acme"))


def test_named_paths_are_refused_where_no_node_runs_the_script() -> None:
    task = script(interpreter="/srv/venv/bin/python", working_directory="/srv/app")
    message = "is offered by a node only: leave it out"
    assert field_errors(task, NODE_FEATURES._replace(node_paths=False)) == {
        "task.interpreter": message,
        "task.working_directory": message,
    }


def test_script_without_interpreter_needs_its_code() -> None:
    task = script(code=None, working_directory="/srv/app")
    assert field_errors(task) == {"task.code": "is required, unless artifact_id is sent"}
