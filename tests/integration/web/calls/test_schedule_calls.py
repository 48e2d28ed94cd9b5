"""The calls on schedules over the node's application, with the store in memory."""

from typing import Any

import pytest

from tests.support.node.web_requests import a_job
from tests.support.web_client import Client


def test_preview_returns_times_and_refuses_wrong_fields(client: Client) -> None:
    body = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-26T12:00:00Z",
        "count": 3,
    }
    preview = client.post("/v1/schedules/preview", body).json
    assert preview["times"][1] == {
        "utc": "2027-03-28T01:00:00.000Z",
        "local": "2027-03-28T03:00:00.000+02:00",
    }
    assert len(preview["times"]) == 3
    assert preview["warnings"]
    assert preview["description"]
    wrong = client.post("/v1/schedules/preview", {**body, "count": 101, "name": "x", "from": 5})
    assert set(wrong.fields) == {"count", "name", "from"}
    assert set(client.post("/v1/schedules/preview", {}).fields) == {"schedule_type"}


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"schedule_type": "IMMEDIATE"}, ["2026-11-18T12:00:00.000Z"]),
        (
            {"schedule_type": "FUTURE", "schedule_time": "2026-11-18T13:00:00+00:30"},
            ["2026-11-18T12:30:00.000Z"],
        ),
        (
            {"schedule_type": "INTERVAL", "interval_seconds": 60, "count": 2},
            ["2026-11-18T12:01:00.000Z", "2026-11-18T12:02:00.000Z"],
        ),
        (
            {"schedule_type": "INTERVAL", "interval_seconds": 60, "max_runs": 1},
            ["2026-11-18T12:01:00.000Z"],
        ),
        (
            {
                "schedule_type": "INTERVAL",
                "interval_seconds": 86_400,
                "exclude": ["2026-11-19"],
                "count": 1,
                "from": "2026-11-18T00:00:00Z",
            },
            ["2026-11-20T00:00:00.000Z"],
        ),
    ],
)
def test_preview_returns_times_of_each_schedule_type(
    client: Client, fields: Any, times: list[str]
) -> None:
    answer = client.post("/v1/schedules/preview", fields)
    assert [time["utc"] for time in answer.json["times"]] == times


def test_upcoming_runs_of_all_jobs_are_listed(client: Client) -> None:
    job_id = a_job(client)
    times = client.get("/v1/schedules/upcoming").json["times"]
    assert {(time["job_id"], time["name"]) for time in times} == {(job_id, "a")}
    assert [time["utc"] for time in times] == [
        f"2026-11-{day}T00:00:00.000Z" for day in range(19, 26)
    ]
    far = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:01Z")
    assert set(far.fields) == {"to"}
    month = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
    assert month.status == 200
    assert set(client.get("/v1/schedules/upcoming?to=2026-01-01T00:00:00Z").fields) == {"to"}


def test_explain_returns_the_outcome_of_a_time(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}/explain"
    explanation = client.get(f"{path}?at=2026-11-19T00:00:00Z").json
    assert (explanation["outcome"], explanation["at"]) == ("PLANNED", "2026-11-19T00:00:00.000Z")
    assert set(explanation) == {
        "job_id",
        "at",
        "occurrence",
        "outcome",
        "reason",
        "run_id",
        "previous",
        "next",
    }
    assert client.get(path).json["outcome"] == "PLANNED"
    local = client.get(f"{path}?at=2026-11-19T00:00:00")
    assert (local.status, set(client.get(f"{path}?at=2026-11-19").fields)) == (200, {"at"})
    assert set(client.get(f"{path}?at=noon").fields) == {"at"}
