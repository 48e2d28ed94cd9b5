"""The versions of a job: each definition with its time, its author and what it changed."""

from typing import Any

import msgspec
import pytest

from tests.support.node.web_requests import a_job
from tests.support.web_client import Client

LARGE = "x" * 20_000  # is stored as a blob


@pytest.fixture
def client() -> Client:
    return Client()


def change(client: Client, job_id: str, **fields: Any) -> None:
    assert client.call("PATCH", f"/v1/jobs/{job_id}", msgspec.json.encode(fields)).status == 200


def versions(client: Client, job_id: str) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/jobs/{job_id}/versions")
    assert answer.json["next_token"] is None
    listed: list[dict[str, Any]] = answer.json["versions"]
    return listed


def test_versions_name_author_and_changed_fields(client: Client) -> None:
    job_id = a_job(client)
    change(client, job_id, name="b", tags={"team": "data"})
    change(client, job_id, max_retries=3)  # the default: this changes nothing
    change(client, job_id, cron_expression=None, interval_seconds=60, schedule_type="INTERVAL")
    listed = versions(client, job_id)
    assert [version["version"] for version in listed] == [3, 2, 1]
    assert [version["changed"] for version in listed[1:]] == [["name", "tags"], []]
    assert {"schedule_type", "cron_expression", "interval_seconds"} <= set(listed[0]["changed"])
    assert {version["by"] for version in listed} == {"local"}
    assert [version["job"]["name"] for version in listed] == ["b", "b", "a"]
    shown = client.get(f"/v1/jobs/{job_id}").json
    assert {name: shown[name] for name in listed[0]["job"]} == listed[0]["job"]
    assert listed[0]["at"] == shown["updated_at"]
    assert listed[-1]["at"] == shown["created_at"]


def test_changes_of_large_payloads_are_seen(client: Client) -> None:
    job_id = a_job(client, payload={"n": 1})
    change(client, job_id, payload=LARGE)
    change(client, job_id, payload=LARGE, priority="HIGH")
    change(client, job_id, payload=f"{LARGE}y")
    change(client, job_id, payload=None)
    listed = versions(client, job_id)
    assert [version["changed"] for version in listed] == [
        ["payload"],
        ["payload"],
        ["priority"],
        ["payload"],
        [],
    ]
    payloads = [version["job"]["payload"] for version in listed]
    assert payloads == [None, f"{LARGE}y", LARGE, LARGE, {"n": 1}]


def test_pause_and_cancel_make_no_version(client: Client) -> None:
    job_id = a_job(client)
    client.post(f"/v1/jobs/{job_id}/pause")
    client.call("DELETE", f"/v1/jobs/{job_id}")
    assert [version["version"] for version in versions(client, job_id)] == [1]


def test_pages_are_complete_while_the_job_changes(client: Client) -> None:
    job_id = a_job(client)
    for number in range(6):
        change(client, job_id, name=f"name {number}")
    numbers, token = [], ""
    for page in range(20):
        answer = client.get(f"/v1/jobs/{job_id}/versions?limit=2{token}").json
        numbers += [version["version"] for version in answer["versions"]]
        if answer["next_token"] is None:
            break
        token = f"&next_token={answer['next_token']}"
        change(client, job_id, name=f"later {page}")
    assert numbers == [7, 6, 5, 4, 3, 2, 1]


def test_token_of_another_job_and_unknown_jobs_are_refused(client: Client) -> None:
    first, second = a_job(client), a_job(client, name="other")
    change(client, first, name="b")
    token = client.get(f"/v1/jobs/{first}/versions?limit=1").json["next_token"]
    assert client.get(f"/v1/jobs/{second}/versions?next_token={token}").status == 422
    assert client.get(f"/v1/jobs/{first}/versions?limit=0").status == 422
    unknown = "01a1ee87-3200-7000-8000-ffffffffffff"
    assert client.get(f"/v1/jobs/{unknown}/versions").status == 404
