"""POST /jobs/bulk over HTTP: its checks, its preview, and repeated requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web.test_http_engine import NodeClient, submitted
from tests.support.web_client import Answer

ID = "01939f6a-7b12-7000-8000-000000000000"


class BulkClient(NodeClient):
    """Sends requests for operations."""

    def bulk(self, value: Any, **headers: str) -> Answer:
        body = json.dumps(value).encode()
        return self.call("POST", "/v1/jobs/bulk", body, headers)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BulkClient]:
    client = BulkClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"action": "pause"}, "filter", 'must name a filter; `"all": true` stands for all'),
        ({"action": "pause", "filter": {}}, "filter", 'must name a filter; `"all": true`'),
        (
            {"action": "pause", "filter": {"name": "a"}, "all": True},
            "all",
            "must not be true with a filter",
        ),
        ({"action": "cancel", "filter": {"name_prefix": ""}}, "filter", "must name a filter"),
        ({"action": "cancel", "filter": {"tag": []}}, "filter", "must name a filter"),
        ({"action": "cancel", "filter": {"status": []}}, "filter.status", "must not be empty"),
        ({"action": "retry", "filter": {"latest_only": True}}, "filter", "must name a filter"),
        ({"action": "erase", "all": True}, "action", "must be one of"),
        ({"action": "cancel", "all": True, "note": "x"}, "note", "is not a field of the action"),
        ({"action": "pause", "all": True, "payload": None}, "payload", "is not a field of the"),
        ({"action": "retry", "filter": {"name": "a"}}, "filter.name", "is not a parameter"),
        ({"action": "pause", "filter": {"status": "GONE"}}, "filter.status", "must be one of"),
        ({"action": "pause", "filter": {"tag": ["team"]}}, "filter.tag", "must be key:value"),
        ({"action": "pause", "filter": {"name": True}}, "filter.name", "must be a text"),
        ({"action": "pause", "filter": {"name": {"a": 1}}}, "filter.name", "must be a text"),
        ({"action": "pause", "filter": {"name": ["a", "b"]}}, "filter.name", "not be given twice"),
        (
            {"action": "resume", "filter": {"paused_by": "x"}},
            "filter.paused_by",
            "must be the id of an operation",
        ),
        (
            {"action": "retry", "filter": {"latest_only": 1}},
            "filter.latest_only",
            "must be true or false",
        ),
        (
            {"action": "pause", "all": True, "until": "2020-01-01T00:00:00Z"},
            "until",
            "must lie in the future",
        ),
        (
            {"action": "pause", "filter": {"tag": ["a:b"] * 101}},
            "filter",
            "must hold at most 100 values",
        ),
    ],
)
def test_wrong_request_names_its_field(
    client: BulkClient, body: Any, field: str, message: str
) -> None:
    answer = client.bulk(body)
    assert answer.status == 422
    errors = {error["field"]: error["message"] for error in answer.json["errors"]}
    assert message in errors[field]


def test_dry_run_shows_the_first_and_changes_nothing(client: BulkClient) -> None:
    for number in range(22):
        submitted(client, {"name": f"job {number}", **HOURLY, "tags": {"team": "data"}})
    answer = client.bulk({"action": "cancel", "filter": {"tag": ["team:data"]}, "dry_run": True})
    assert (answer.status, answer.json["matched"], len(answer.json["first"])) == (200, 22, 20)
    assert answer.json["first"][0]["job_name"] == "job 21"
    assert client.get("/v1/operations").json["operations"] == []


def test_all_may_leave_out_runs_that_were_followed(client: BulkClient) -> None:
    body = {"action": "retry", "all": True, "filter": {"latest_only": True}, "dry_run": True}
    assert client.bulk(body).json == {"matched": 0, "first": []}


def test_repeated_request_begins_one_operation(client: BulkClient) -> None:
    submitted(client, {"name": "job", **HOURLY})
    first = client.bulk({"action": "run_now", "all": True}, idempotency_key="once")
    second = client.bulk({"action": "run_now", "all": True}, idempotency_key="once")
    assert (first.status, second.status) == (202, 202)
    assert first.json["operation_id"] == second.json["operation_id"]
    assert first.headers["location"] == f"/v1/operations/{first.json['operation_id']}"
    other = client.bulk({"action": "pause", "all": True}, idempotency_key="once")
    assert other.status == 422


def test_unknown_operation_is_not_found(client: BulkClient) -> None:
    for method, path in (("GET", ID), ("POST", f"{ID}/cancel"), ("GET", "x")):
        assert client.call(method, f"/v1/operations/{path}").status == 404


HOURLY = {"schedule_type": "CRON", "cron_expression": "0 * * * *"}
