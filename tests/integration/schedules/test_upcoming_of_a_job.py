"""GET /schedules/upcoming with `job_id`: one job, pages, pauses, and what is refused."""

from typing import Any

import pytest

from tests.support.web_client import Client

UPCOMING = "/v1/schedules/upcoming"
HOURLY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 3_600}


@pytest.fixture
def client() -> Client:
    return Client()  # at noon of 18 November 2026


def submitted(client: Client, **fields: Any) -> str:
    return str(client.post("/v1/jobs", {**HOURLY, **fields}).json["job_id"])


def times(client: Client, job_id: str, query: str = "") -> list[str]:
    found, token = [], ""
    for _ in range(20):
        answer = client.get(f"{UPCOMING}?job_id={job_id}{query}{token}")
        assert answer.status == 200, answer.body
        assert {time["job_id"] for time in answer.json["times"]} <= {job_id}
        found += [time["utc"][8:16] for time in answer.json["times"]]
        if answer.json["next_token"] is None:
            return found
        token = f"&next_token={answer.json['next_token']}"
    raise AssertionError("the list does not end")


def test_times_of_one_job_are_listed_in_pages(client: Client) -> None:
    submitted(client, name="other", interval_seconds=60)
    job_id = submitted(client, max_runs=5)
    expected = ["18T13:00", "18T14:00", "18T15:00", "18T16:00", "18T17:00"]
    assert times(client, job_id) == times(client, job_id, "&limit=2") == expected
    assert times(client, job_id, "&from=2026-11-18T15:00:00Z&to=2026-11-18T17:00:00Z") == [
        "18T15:00",
        "18T16:00",
    ]


def test_interval_from_completion_has_only_its_next_time(client: Client) -> None:
    assert times(client, submitted(client, interval_from="COMPLETED")) == ["18T13:00"]


def test_pause_that_ends_by_itself_leaves_the_times_after_it(client: Client) -> None:
    job_id = submitted(client, max_runs=4)
    client.post(f"/v1/jobs/{job_id}/pause", {"until": "2026-11-18T14:30:00Z"})
    # The missed time of 14:00 runs at the end of the pause, so three of four runs are left.
    assert times(client, job_id) == ["18T15:00", "18T16:00", "18T17:00"]
    all_jobs = client.get(UPCOMING).json["times"]
    assert [time["utc"][8:16] for time in all_jobs] == ["18T15:00", "18T16:00", "18T17:00"]
    client.post(f"/v1/jobs/{job_id}/pause", {})
    assert times(client, job_id) == []


def test_unknown_job_and_foreign_page_token_are_refused(client: Client) -> None:
    job_id = submitted(client)
    token = client.get(f"{UPCOMING}?job_id={job_id}&limit=1").json["next_token"]
    assert client.get(f"{UPCOMING}?limit=1&next_token={token}").status == 422
    for unknown in ("01a1ee87-3200-7000-8000-ffffffffffff", "x"):
        assert client.get(f"{UPCOMING}?job_id={unknown}").status == 404
    assert client.get(f"{UPCOMING}?job_id=").status == 422
