"""Requests built from values."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from punctual.client import Misuse, container, event, http, invoke, queue, script
from punctual.client.wire import (
    Repeat,
    Request,
    build_path,
    encode_body,
    format_time,
    idempotency_headers,
    query_parameters,
)

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Order(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NOON, '"2026-11-18T12:00:00+00:00"'),
        (NOON.astimezone(timezone(timedelta(hours=1))), '"2026-11-18T12:00:00+00:00"'),
        (date(2026, 12, 24), '"2026-12-24"'),
        (timedelta(minutes=5), "300"),
        (timedelta(milliseconds=1500), "1.5"),
        (Order(7), '{"number":7}'),
        (MappingProxyType({"a": (1, 2)}), '{"a":[1,2]}'),
        (frozenset({1}), "[1]"),
        ({"é": None, "b": [True, 1.5]}, '{"é":null,"b":[true,1.5]}'),
    ],
)
def test_values_are_encoded_as_the_contract_says(value: Any, text: str) -> None:
    assert encode_body(value).decode() == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        datetime(2026, 11, 18),  # noqa: DTZ001, that is the point
        Decimal("1.5"),
        b"bytes",
        object(),
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
def test_value_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(Misuse, match="cannot be encoded as JSON"):
        encode_body({"payload": value})


def test_recursive_value_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Misuse):
        encode_body(value)


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Misuse, match="no time zone"):
        format_time(datetime(2026, 11, 18))  # noqa: DTZ001


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_empty_or_dotted_id_is_refused(part: str) -> None:
    with pytest.raises(Misuse, match="is not an id"):
        build_path("jobs", part)


def test_slash_in_an_id_is_escaped() -> None:
    assert build_path("jobs", "../tokens?x#y") == "/jobs/..%2Ftokens%3Fx%23y"


def test_only_given_parameters_are_sent() -> None:
    parameters = query_parameters(from_=NOON, to=None, status=["FAILED", "MISSED"], tag=[], limit=5)
    assert parameters == (
        ("from", "2026-11-18T12:00:00+00:00"),
        ("status", "FAILED"),
        ("status", "MISSED"),
        ("limit", "5"),
    )
    request = Request("GET", "/runs", parameters, repeat=Repeat.READS)
    assert request.url("http://a/v1") == (
        "http://a/v1/runs?from=2026-11-18T12%3A00%3A00%2B00%3A00"
        "&status=FAILED&status=MISSED&limit=5"
    )


@pytest.mark.parametrize("key", ["", "a\nb", "é", "x" * 256])
def test_malformed_idempotency_key_is_refused(key: str) -> None:
    with pytest.raises(Misuse, match="idempotency_key"):
        idempotency_headers(key)


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        (event(), {"type": "event"}),
        (http("https://a"), {"type": "http", "url": "https://a"}),
        (http("https://a", body=None), {"type": "http", "url": "https://a", "body": None}),
        (
            http("https://a", headers={"x": "y"}, expect_status=[200], follow_redirects=1),
            {
                "type": "http",
                "url": "https://a",
                "headers": {"x": "y"},
                "expect_status": [200],
                "follow_redirects": 1,
            },
        ),
        (invoke("f"), {"type": "lambda", "function": "f"}),
        (queue("https://q"), {"type": "sqs", "queue_url": "https://q"}),
        (
            script("echo", runtime="bash", args=["a"], env={"A": "b"}),
            {
                "type": "script",
                "runtime": "bash",
                "code": "echo",
                "args": ["a"],
                "env": {"A": "b"},
            },
        ),
        (
            container("image", command=["a"], resources={"cpu": 1}),
            {"type": "container", "image": "image", "command": ["a"], "resources": {"cpu": 1}},
        ),
    ],
)
def test_task_has_only_the_given_fields(task: Mapping[str, Any], fields: dict[str, Any]) -> None:
    assert task == fields
