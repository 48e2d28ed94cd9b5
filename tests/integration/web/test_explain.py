"""Explain matches the second that views show. Without a time it takes the last due time."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web.test_http_engine import NOON, NodeClient, submitted
from tests.integration.web.test_past_occurrences import MINUTE, MINUTELY, changed, text

EVERY_MINUTE = {"name": "e", "schedule_type": "INTERVAL", "interval_seconds": 60}
FROM_COMPLETION = {**EVERY_MINUTE, "interval_from": "COMPLETED"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def a_job_path(client: NodeClient, body: dict[str, Any]) -> str:
    """Return the path of a job that is created between two whole seconds."""
    client.clock.set(NOON + timedelta(milliseconds=411, microseconds=700))
    return f"/v1/jobs/{submitted(client, body)['job_id']}"


def explained(client: NodeClient, path: str, at: str = "") -> dict[str, Any]:
    answer = client.get(f"{path}/explain{'?at=' if at else ''}{at}")
    assert answer.status == 200, answer.json
    explanation: dict[str, Any] = answer.json
    return explanation


def minute(explanation: dict[str, Any]) -> float:
    """Return the occurrence in minutes after noon, without the part of a second."""
    return (datetime.fromisoformat(explanation["occurrence"]) - NOON) // timedelta(seconds=1) / 60


@pytest.mark.parametrize("schedule", [EVERY_MINUTE, FROM_COMPLETION])
def test_occurrence_matches_within_the_shown_second(
    client: NodeClient, schedule: dict[str, Any]
) -> None:
    path = a_job_path(client, schedule)
    client.until(NOON + 4.5 * MINUTE)
    runs = client.get(f"{path}/runs").json["runs"]
    assert len(runs) == 4
    for run in runs:
        shown = run["scheduled_time"]
        assert not shown.endswith(".000Z")
        for at in (shown, f"{shown[:19]}Z", f"{shown[:19]}.999Z", shown[:19]):
            explanation = explained(client, path, at)
            assert (explanation["outcome"], explanation["run_id"]) == ("SUCCESS", run["run_id"])
            assert (explanation["at"], explanation["occurrence"]) == (shown, shown)
        next_second = datetime.fromisoformat(shown) + timedelta(seconds=1)
        assert explained(client, path, text(next_second))["outcome"] == "NOT_SCHEDULED"
    next_time = client.get(path).json["next_run_time"]
    assert explained(client, path, f"{next_time[:19]}Z")["outcome"] == "PLANNED"


def test_occurrence_at_the_exact_time_precedes_one_in_its_second(
    client: NodeClient,
) -> None:
    path = a_job_path(client, EVERY_MINUTE)
    client.until(NOON + 2.5 * MINUTE)
    changed(client, path, cron_expression="* * * * * *", interval_seconds=None)
    client.until(NOON + 2.6 * MINUTE)
    at = NOON + 2.6 * MINUTE
    assert explained(client, path, text(at))["occurrence"] == text(at)


def test_excluded_occurrence_matches_within_its_second(client: NodeClient) -> None:
    path = a_job_path(client, {**EVERY_MINUTE, "exclude": ["2026-11-19"]})
    assert explained(client, path, "2026-11-19T12:01:00Z")["outcome"] == "EXCLUDED"


def test_time_without_an_offset_is_in_the_time_zone_of_the_job(client: NodeClient) -> None:
    path = a_job_path(
        client, {**MINUTELY, "cron_expression": "40 17 * * *", "timezone": "Asia/Kolkata"}
    )
    client.until(NOON + 11 * MINUTE)
    for at in ("2026-11-18T17:40:00", "2026-11-18T12:10:00Z"):
        assert explained(client, path, at)["outcome"] == "SUCCESS"
    assert explained(client, path, "2026-11-18T12:10:00")["outcome"] == "NOT_SCHEDULED"


@pytest.mark.parametrize("schedule", [MINUTELY, EVERY_MINUTE, FROM_COMPLETION])
def test_explain_without_a_time_takes_the_last_due_time(
    client: NodeClient, schedule: dict[str, Any]
) -> None:
    path = a_job_path(client, schedule)
    assert explained(client, path)["outcome"] == "PLANNED"
    assert minute(explained(client, path)) == 1  # the first occurrence, as none was due yet
    client.until(NOON + 5.5 * MINUTE)
    explanation = explained(client, path)
    assert (explanation["outcome"], minute(explanation)) == ("SUCCESS", 5)
    assert client.post(f"{path}/runNow", {}).status == 202  # a requested run is not an occurrence
    client.until(NOON + 5.6 * MINUTE)
    assert explained(client, path) == explanation


def test_last_due_time_follows_the_definition_of_its_time(client: NodeClient) -> None:
    path = a_job_path(client, MINUTELY)
    client.until(NOON + 3.5 * MINUTE)
    changed(client, path, cron_expression="0 23 * * *")
    client.until(NOON + 9 * MINUTE)
    explanation = explained(client, path)
    assert (explanation["outcome"], minute(explanation)) == ("SUCCESS", 3)


def test_last_due_time_of_a_paused_job_is_in_its_pause(client: NodeClient) -> None:
    path = a_job_path(client, MINUTELY)
    client.until(NOON + 2.5 * MINUTE)
    assert client.post(f"{path}/pause", {}).status == 200
    client.until(NOON + 5.5 * MINUTE)
    explanation = explained(client, path)
    assert (explanation["outcome"], minute(explanation)) == ("PAUSED", 5)


@pytest.mark.parametrize("ends", [{"max_runs": 2}, {"end_time": text(NOON + 2.5 * MINUTE)}, {}])
def test_last_due_time_of_an_ended_job_is_its_last_occurrence(
    client: NodeClient, ends: dict[str, Any]
) -> None:
    path = a_job_path(client, {**MINUTELY, **ends})
    client.until(NOON + 2.4 * MINUTE)
    if not ends:
        assert client.call("DELETE", path).status == 200
    client.until(NOON + 5.5 * MINUTE)
    explanation = explained(client, path)
    assert (explanation["outcome"], minute(explanation)) == ("SUCCESS", 2)


def test_last_due_time_of_an_immediate_job_is_its_run(client: NodeClient) -> None:
    path = a_job_path(client, {"name": "once", "schedule_type": "IMMEDIATE"})
    client.until(NOON + MINUTE)
    (run,) = client.get(f"{path}/runs").json["runs"]
    explanation = explained(client, path)
    assert (explanation["outcome"], explanation["run_id"]) == ("SUCCESS", run["run_id"])


def test_occurrence_with_jitter_is_due_later(client: NodeClient) -> None:
    path = a_job_path(client, {**MINUTELY, "jitter_seconds": 3_600})
    client.until(NOON + 70.5 * MINUTE)
    latest = client.get(f"{path}/runs").json["runs"][0]
    due = datetime.fromisoformat(latest["due_time"])
    assert due <= client.clock.now < due + MINUTE
    explanation = explained(client, path)
    assert (explanation["run_id"], explanation["at"]) == (
        latest["run_id"],
        latest["scheduled_time"],
    )
