"""Occurrences of a job: two lists joined, by both clients."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from punctual.client import Misuse
from tests.support.client.kinds import JOB, RUN, Server, both_clients

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
ID = JOB["job_id"]


def at(minute: int) -> str:
    return f"2026-11-18T12:{minute:02}:00.000Z"


def a_run(minute: int, **fields: Any) -> dict[str, Any]:
    return {**RUN, "scheduled_time": at(minute), "trigger": "SCHEDULE", **fields}


def a_time(minute: int) -> dict[str, Any]:
    return {"job_id": ID, "name": "a", "utc": at(minute), "local": at(minute)}


def answers(times: list[Any], runs: list[Any]) -> list[httpx.Response]:
    return [
        httpx.Response(200, json={"times": times, "next_token": None}),
        httpx.Response(200, json={"runs": runs, "next_token": None}),
    ]


@both_clients
def test_outcomes_and_planned_times_are_joined_in_order(open_client: Any) -> None:
    missed = a_run(1, status="MISSED", count=3, last_scheduled_time=at(3))
    runs = [a_run(5, status="QUEUED"), a_run(4), missed]
    server = Server(*answers([a_time(5), a_time(6)], runs))
    with open_client(transport=server.transport) as access:
        items = access.do(access.client.jobs.occurrences(ID, NOON, NOON + timedelta(minutes=9)))
    shown = [(item.scheduled_time.minute, item.status, item.count) for item in items]
    assert shown == [(1, "MISSED", 3), (4, "SUCCESS", 1), (5, "QUEUED", 1), (6, "PLANNED", 1)]
    assert items[0].last_scheduled_time == NOON + timedelta(minutes=3)
    assert items[3].last_scheduled_time == items[3].scheduled_time
    assert [request.url.path for request in server.asked] == [
        "/v1/schedules/upcoming",
        f"/v1/jobs/{ID}/runs",
    ]
    assert server.asked[0].url.params["job_id"] == ID
    for request in server.asked:
        assert request.url.params["from"] == "2026-11-18T12:00:00+00:00"


@both_clients
def test_run_on_request_does_not_hide_a_planned_time(open_client: Any) -> None:
    server = Server(*answers([a_time(5)], [a_run(5, trigger="RUN_NOW")]))
    with open_client(transport=server.transport) as access:
        items = access.do(access.client.jobs.occurrences(ID, at(0), at(9)))
    assert [item.status for item in items] == ["SUCCESS", "PLANNED"]


@both_clients
def test_long_range_is_planned_in_parts(open_client: Any) -> None:
    times, runs = answers([], [])
    server = Server(times, times, times, runs)
    with open_client(transport=server.transport) as access:
        end = NOON + timedelta(days=70)
        assert access.do(access.client.jobs.occurrences(ID, NOON, end)) == ()
    ranges = [(request.url.params["from"], request.url.params["to"]) for request in server.asked]
    assert [low[:10] for low, _ in ranges] == [
        "2026-11-18",
        "2026-12-19",
        "2027-01-19",
        "2026-11-18",
    ]
    assert all(ranges[index][1] == ranges[index + 1][0] for index in range(2))


@both_clients
@pytest.mark.parametrize("value", ["yesterday", "2026-11-18T12:00:00", datetime(2026, 11, 18)])  # noqa: DTZ001
def test_time_without_a_zone_is_refused_before_a_call(open_client: Any, value: Any) -> None:
    server = Server(*answers([], []))
    with (
        open_client(transport=server.transport) as access,
        pytest.raises(Misuse, match="from_"),
    ):
        access.do(access.client.jobs.occurrences(ID, value, NOON))
    assert server.asked == []
