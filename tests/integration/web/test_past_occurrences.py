"""Backfill and explain agree on past occurrences after changes, pauses and max_runs."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web.test_http_engine import NOON, NodeClient, submitted

MINUTE = timedelta(minutes=1)
MINUTELY = {"name": "m", "schedule_type": "CRON", "cron_expression": "* * * * *"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def minutes(client: NodeClient, path: str, start: int = 0, end: int | None = None) -> list[int]:
    """Return the times of a dry run, in minutes after noon."""
    until = client.clock.now if end is None else NOON + end * MINUTE
    body = {"from": text(NOON + start * MINUTE), "to": text(until), "dry_run": True}
    answer = client.post(f"{path}/backfill", body)
    assert answer.status == 200, answer.json
    return [round((datetime.fromisoformat(at) - NOON) / MINUTE) for at in answer.json["times"]]


def explained(client: NodeClient, path: str, minute: int) -> dict[str, Any]:
    answer = client.get(f"{path}/explain?at={text(NOON + minute * MINUTE)}")
    assert answer.status == 200
    explanation: dict[str, Any] = answer.json
    return explanation


def text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def changed(client: NodeClient, path: str, **fields: Any) -> None:
    assert client.call("PATCH", path, json.dumps(fields).encode()).status == 200


def test_backfill_and_explain_use_the_earlier_schedule(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, MINUTELY)['job_id']}"
    client.until(NOON + 5.5 * MINUTE)
    changed(client, path, cron_expression="*/3 * * * *", exclude=["2026-11-19"])
    client.until(NOON + 10 * MINUTE)
    assert minutes(client, path) == [0]  # the minute in which the job was created
    assert minutes(client, path, -3) == [-3, -2, -1, 0]
    assert explained(client, path, 4)["outcome"] == "SUCCESS"
    assert explained(client, path, 7)["outcome"] == "NOT_SCHEDULED"


def test_paused_occurrences_are_backfilled_by_the_schedules_of_the_pause(
    client: NodeClient,
) -> None:
    every = {"name": "e", "schedule_type": "INTERVAL", "interval_seconds": 60}
    path = f"/v1/jobs/{submitted(client, every)['job_id']}"
    client.until(NOON + 2.5 * MINUTE)
    assert client.post(f"{path}/pause", {}).status == 200
    client.until(NOON + 3.2 * MINUTE)
    changed(client, path, name="another")
    client.until(NOON + 5.5 * MINUTE)
    changed(client, path, schedule_type="CRON", cron_expression="*/2 * * * *")
    client.until(NOON + 8.5 * MINUTE)
    assert minutes(client, path, -3) == [3, 4, 5, 6, 8]
    assert client.post(f"{path}/resume", {"missed": "SKIP"}).status == 200
    assert minutes(client, path, -3) == [3, 4, 5, 6, 8]
    body = {"from": text(NOON), "to": text(client.clock.now)}
    assert client.post(f"{path}/backfill", body).json == {"runs": 5}
    assert minutes(client, path, -3) == []


def test_occurrences_that_are_about_to_run_are_not_backfilled(client: NodeClient) -> None:
    late = {**MINUTELY, "misfire_policy": "RUN_ALL", "misfire_grace_seconds": 0}
    path = f"/v1/jobs/{submitted(client, late)['job_id']}"
    client.until(NOON + 1.5 * MINUTE)
    client.clock.set(NOON + 4.5 * MINUTE)  # no timer was evaluated yet
    assert explained(client, path, 3)["outcome"] == "PLANNED"
    assert minutes(client, path, 1) == []
    client.until(NOON + 4.6 * MINUTE)
    assert minutes(client, path, 1) == []
    assert explained(client, path, 3)["outcome"] == "SUCCESS"


def test_times_after_max_runs_are_not_occurrences(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, {**MINUTELY, 'max_runs': 2})['job_id']}"
    client.until(NOON + 5.5 * MINUTE)
    assert client.get(path).json["status"] == "COMPLETED"
    assert minutes(client, path, 1) == []
    assert minutes(client, path, -1, 1) == [-1, 0]
    changed(client, path, max_runs=4)
    client.until(NOON + 10.5 * MINUTE)
    assert [explained(client, path, n)["outcome"] for n in (2, 4, 7, 9, 20)] == [
        *("SUCCESS", "NOT_SCHEDULED", "SUCCESS", "NOT_SCHEDULED", "NOT_SCHEDULED")
    ]
    assert all("max_runs" in explained(client, path, n)["reason"] for n in (4, 9, 20))
    assert minutes(client, path, 1) == []
    changed(client, path, cron_expression="*/2 * * * *", max_runs=None)
    assert minutes(client, path, 1) == []


def test_missed_occurrences_within_max_runs_are_backfilled(client: NodeClient) -> None:
    job = {**MINUTELY, "max_runs": 3, "misfire_policy": "SKIP", "misfire_grace_seconds": 0}
    path = f"/v1/jobs/{submitted(client, job)['job_id']}"
    client.until(NOON + 1.5 * MINUTE)
    client.clock.set(NOON + 5.5 * MINUTE)  # an outage: 2 to 5 are missed, in one entry
    client.until(NOON + 12 * MINUTE)
    assert client.get(path).json["status"] == "COMPLETED"
    assert minutes(client, path, 1) == [2, 3, 4, 5]
    assert minutes(client, path, 3) == [3, 4, 5]
    assert minutes(client, path, 4, 5) == [4]


def test_only_occurrences_within_max_runs_are_planned(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, {**MINUTELY, 'max_runs': 3})['job_id']}"
    client.until(NOON + 1.5 * MINUTE)
    upcoming = client.get("/v1/schedules/upcoming?to=2026-11-18T13:00:00Z").json["times"]
    assert len(upcoming) == 2
    assert [explained(client, path, n)["outcome"] for n in (2, 3, 4)] == [
        *("PLANNED", "PLANNED", "NOT_SCHEDULED")
    ]
    assert explained(client, path, 3)["next"] is None
    assert explained(client, path, 9)["previous"] == upcoming[1]["utc"]


def test_backfill_over_too_many_definitions_is_refused(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.engine.commands.backfill.MAX_BACKFILL_DEFINITIONS", 5)
    path = f"/v1/jobs/{submitted(client, MINUTELY)['job_id']}"
    for number in range(1, 7):
        client.until(NOON + (number + 0.5) * MINUTE)
        changed(client, path, name=str(number))
    assert minutes(client, path, 3) == []
    body = {"from": text(NOON), "to": text(client.clock.now), "dry_run": True}
    answer = client.post(f"{path}/backfill", body)
    assert (answer.status, set(answer.fields)) == (422, {"from"})


def test_backfill_of_intervals_from_completion_is_refused(client: NodeClient) -> None:
    every = {"name": "e", "schedule_type": "INTERVAL", "interval_seconds": 60}
    path = f"/v1/jobs/{submitted(client, {**every, 'interval_from': 'COMPLETED'})['job_id']}"
    client.until(NOON + 2.5 * MINUTE)
    changed(client, path, **{**MINUTELY, "name": "cron"})
    client.until(NOON + 5.5 * MINUTE)
    assert minutes(client, path, 3) == []
    body = {"from": text(NOON + 2 * MINUTE), "to": text(client.clock.now), "dry_run": True}
    assert set(client.post(f"{path}/backfill", body).fields) == {"from"}


def test_previous_time_precedes_a_year_of_excluded_dates(
    client: NodeClient,
) -> None:
    excluded = [f"{NOON.date() + timedelta(days=n)}" for n in range(-300, 66)]
    job = {
        "name": "each second except one year",
        "schedule_type": "CRON",
        "cron_expression": "* * * * * *",
        "exclude": excluded,
    }
    explanation = explained(client, f"/v1/jobs/{submitted(client, job)['job_id']}", 0)
    assert (explanation["outcome"], explanation["occurrence"]) == ("EXCLUDED", None)
    first, after = excluded[0], NOON.date() + timedelta(days=66)
    assert datetime.fromisoformat(explanation["previous"]) == datetime.fromisoformat(
        f"{first}T00:00:00Z"
    ) - timedelta(seconds=1)
    assert explanation["next"] == f"{after}T00:00:00.000Z"
