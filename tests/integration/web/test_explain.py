"""Explain answers for the second that people read, and without a time for the last due one."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web.test_http_engine import NOON, NodeClient, submitted
from tests.integration.web.test_past import MINUTE, MINUTELY, changed, text

EVERY_MINUTE = {"name": "e", "schedule_type": "INTERVAL", "interval_seconds": 60}
FROM_COMPLETION = {**EVERY_MINUTE, "interval_from": "COMPLETED"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def made(client: NodeClient, body: dict[str, Any]) -> str:
    """The path of a new job, made at a moment that no whole second is."""
    client.clock.set(NOON + timedelta(milliseconds=411, microseconds=700))
    return f"/v1/jobs/{submitted(client, body)['job_id']}"


def explained(client: NodeClient, path: str, at: str = "") -> dict[str, Any]:
    answer = client.get(f"{path}/explain{'?at=' if at else ''}{at}")
    assert answer.status == 200, answer.json
    found: dict[str, Any] = answer.json
    return found


def minute(found: dict[str, Any]) -> float:
    """The minutes after noon of the occurrence, to the second."""
    return (datetime.fromisoformat(found["occurrence"]) - NOON) // timedelta(seconds=1) / 60


@pytest.mark.parametrize("schedule", [EVERY_MINUTE, FROM_COMPLETION])
def test_an_occurrence_matches_within_the_second_that_a_view_shows(
    client: NodeClient, schedule: dict[str, Any]
) -> None:
    path = made(client, schedule)
    client.until(NOON + 4.5 * MINUTE)
    runs = client.get(f"{path}/runs").json["runs"]
    assert len(runs) == 4
    for run in runs:
        shown = run["scheduled_time"]
        assert not shown.endswith(".000Z")
        for at in (shown, f"{shown[:19]}Z", f"{shown[:19]}.999Z", shown[:19]):
            found = explained(client, path, at)
            assert (found["outcome"], found["run_id"]) == ("SUCCESS", run["run_id"])
            assert (found["at"], found["occurrence"]) == (shown, shown)
        beside = datetime.fromisoformat(shown) + timedelta(seconds=1)
        assert explained(client, path, text(beside))["outcome"] == "NOT_SCHEDULED"
    coming = client.get(path).json["next_run_time"]
    assert explained(client, path, f"{coming[:19]}Z")["outcome"] == "PLANNED"


def test_an_occurrence_at_the_time_asked_for_comes_before_one_within_its_second(
    client: NodeClient,
) -> None:
    path = made(client, EVERY_MINUTE)
    client.until(NOON + 2.5 * MINUTE)
    changed(client, path, cron_expression="* * * * * *", interval_seconds=None)
    client.until(NOON + 2.6 * MINUTE)
    at = NOON + 2.6 * MINUTE
    assert explained(client, path, text(at))["occurrence"] == text(at)


def test_an_excluded_date_is_named_within_the_second(client: NodeClient) -> None:
    path = made(client, {**EVERY_MINUTE, "exclude": ["2026-11-19"]})
    assert explained(client, path, "2026-11-19T12:01:00Z")["outcome"] == "EXCLUDED"


def test_a_time_without_a_zone_is_in_that_of_the_job(client: NodeClient) -> None:
    path = made(client, {**MINUTELY, "cron_expression": "40 17 * * *", "timezone": "Asia/Kolkata"})
    client.until(NOON + 11 * MINUTE)
    for at in ("2026-11-18T17:40:00", "2026-11-18T12:10:00Z"):
        assert explained(client, path, at)["outcome"] == "SUCCESS"
    assert explained(client, path, "2026-11-18T12:10:00")["outcome"] == "NOT_SCHEDULED"


@pytest.mark.parametrize("schedule", [MINUTELY, EVERY_MINUTE, FROM_COMPLETION])
def test_without_a_time_the_last_due_one_is_explained(
    client: NodeClient, schedule: dict[str, Any]
) -> None:
    path = made(client, schedule)
    assert explained(client, path)["outcome"] == "PLANNED"
    assert minute(explained(client, path)) == 1  # the first to come: none was due yet
    client.until(NOON + 5.5 * MINUTE)
    found = explained(client, path)
    assert (found["outcome"], minute(found)) == ("SUCCESS", 5)
    assert client.post(f"{path}/runNow", {}).status == 202  # it has no due time
    client.until(NOON + 5.6 * MINUTE)
    assert explained(client, path) == found


def test_the_last_due_time_is_one_of_the_definition_then(client: NodeClient) -> None:
    path = made(client, MINUTELY)
    client.until(NOON + 3.5 * MINUTE)
    changed(client, path, cron_expression="0 23 * * *")
    client.until(NOON + 9 * MINUTE)
    found = explained(client, path)
    assert (found["outcome"], minute(found)) == ("SUCCESS", 3)


def test_the_last_due_time_of_a_paused_job_is_in_its_pause(client: NodeClient) -> None:
    path = made(client, MINUTELY)
    client.until(NOON + 2.5 * MINUTE)
    assert client.post(f"{path}/pause", {}).status == 200
    client.until(NOON + 5.5 * MINUTE)
    found = explained(client, path)
    assert (found["outcome"], minute(found)) == ("PAUSED", 5)


@pytest.mark.parametrize("ends", [{"max_runs": 2}, {"end_time": text(NOON + 2.5 * MINUTE)}, {}])
def test_the_last_due_time_of_a_job_that_is_over_is_its_last(
    client: NodeClient, ends: dict[str, Any]
) -> None:
    path = made(client, {**MINUTELY, **ends})
    client.until(NOON + 2.4 * MINUTE)
    if not ends:
        assert client.call("DELETE", path).status == 200
    client.until(NOON + 5.5 * MINUTE)
    found = explained(client, path)
    assert (found["outcome"], minute(found)) == ("SUCCESS", 2)


def test_the_last_due_time_of_a_job_that_ran_once_is_that_one(client: NodeClient) -> None:
    path = made(client, {"name": "once", "schedule_type": "IMMEDIATE"})
    client.until(NOON + MINUTE)
    (run,) = client.get(f"{path}/runs").json["runs"]
    found = explained(client, path)
    assert (found["outcome"], found["run_id"]) == ("SUCCESS", run["run_id"])


def test_a_time_with_jitter_is_due_that_much_later(client: NodeClient) -> None:
    path = made(client, {**MINUTELY, "jitter_seconds": 3_600})
    client.until(NOON + 70.5 * MINUTE)
    latest = client.get(f"{path}/runs").json["runs"][0]
    due = datetime.fromisoformat(latest["due_time"])
    assert due <= client.clock.now < due + MINUTE
    found = explained(client, path)
    assert (found["run_id"], found["at"]) == (latest["run_id"], latest["scheduled_time"])
