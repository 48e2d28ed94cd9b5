"""GET /forecast: minutes and hours, wrong parameters, and the limit of its work."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from punctual.engine.queries.slices import MAX_WORK_SECONDS
from punctual.node.long_work import LongWork
from tests.integration.web.test_http_engine import NodeClient
from tests.integration.web.test_long_requests import Processor
from tests.support.web_client import Client

HALF_HOURLY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 1_800}


@pytest.fixture
def client() -> Client:
    return Client()  # at noon of 18 November 2026


def forecast(client: Client, query: str = "") -> Any:
    answer = client.get(f"/v1/forecast{query}")
    assert answer.status == 200, answer.body
    return answer.json


def test_forecast_has_every_minute_of_a_day(client: Client) -> None:
    client.post("/v1/jobs", HALF_HOURLY)
    answer = forecast(client)
    assert (answer["from"], answer["to"]) == (
        "2026-11-18T12:00:00.000Z",
        "2026-11-19T12:00:00.000Z",
    )
    assert (answer["step_seconds"], len(answer["minutes"])) == (60, 1_440)
    assert answer["minutes"][29:31] == [
        {"minute": "2026-11-18T12:29:00.000Z", "starts": 0},
        {"minute": "2026-11-18T12:30:00.000Z", "starts": 1},
    ]
    assert (answer["starts"], answer["jobs"], answer["from_completion_jobs"]) == (47, 1, 0)


def test_longer_forecast_is_by_hour_with_the_busiest_minute(client: Client) -> None:
    for name in ("a", "b"):
        client.post("/v1/jobs", {**HALF_HOURLY, "name": name})
    client.post("/v1/jobs", {**HALF_HOURLY, "name": "c", "interval_seconds": 5_400})
    answer = forecast(client, "?hours=168")
    assert (answer["step_seconds"], len(answer["minutes"])) == (3_600, 168)
    assert answer["minutes"][1] == {"minute": "2026-11-18T13:00:00.000Z", "starts": 5}
    assert answer["busiest"] == {"minute": "2026-11-18T13:30:00.000Z", "starts": 3}


def test_forecast_without_jobs_has_no_busiest_minute(client: Client) -> None:
    answer = forecast(client, "?hours=1")
    assert (answer["busiest"], answer["starts"], len(answer["minutes"])) == (None, 0, 60)


def test_interval_from_completion_is_named(client: Client) -> None:
    client.post("/v1/jobs", {**HALF_HOURLY, "interval_from": "COMPLETED"})
    answer = forecast(client, "?hours=2")
    assert (answer["starts"], answer["from_completion_jobs"]) == (3, 1)


@pytest.mark.parametrize("query", ["hours=0", "hours=169", "hours=x", "hours=1&hours=2", "days=1"])
def test_wrong_parameters_are_refused(client: Client, query: str) -> None:
    answer = client.get(f"/v1/forecast?{query}")
    assert (answer.status, set(answer.fields)) == (422, {query.partition("=")[0]})


def test_forecast_over_the_work_limit_is_refused(tmp_path: Path) -> None:
    client = NodeClient(tmp_path)
    try:
        jobs = [{**HALF_HOURLY, "name": str(number)} for number in range(300)]
        assert client.post("/v1/jobs/batch", {"jobs": jobs}).status == 207
        assert client.get("/v1/forecast").json["starts"] == 300 * 47
        client.application._long_work = LongWork(client.perform, Processor(MAX_WORK_SECONDS / 2))
        answer = client.get("/v1/forecast")
        assert (answer.status, answer.json["code"]) == (422, "TOO_MUCH_WORK")
    finally:
        client.close()


def test_other_requests_are_answered_during_a_forecast(tmp_path: Path) -> None:
    client = NodeClient(tmp_path)
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        await asyncio.sleep(0)
        return await client.perform(request)

    try:
        jobs = [{**HALF_HOURLY, "name": str(number)} for number in range(500)]
        assert client.post("/v1/jobs/batch", {"jobs": jobs}).status == 207
        client.application._long_work = LongWork(turn, Processor(0.02))
        assert client.get("/v1/forecast").json["starts"] == 500 * 47
        assert turns > 2
    finally:
        client.close()
