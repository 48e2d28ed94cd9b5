"""Requests whose answer takes long: cut into slices, bounded, and in nobody's way."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.cron import Calendar
from punctual.domain.errors import Unavailable
from punctual.engine.slices import MAX_SECONDS, SLICE_SECONDS
from punctual.local.long_work import LongWork
from tests.integration.test_http_engine import NOON, NodeClient, submitted
from tests.web_client import Answer

SLICE = 1.01 * SLICE_SECONDS
EACH_SECOND = {"name": "s", "schedule_type": "CRON", "cron_expression": "* * * * * *"}


class Processor:
    """Each look at this clock is `seconds` later than the one before: one look, one step."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def paced(client: NodeClient, seconds: float) -> None:
    client._app._long_work = LongWork(client._perform, Processor(seconds))


def moment(seconds: float) -> str:
    at = NOON + timedelta(seconds=seconds)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def backfill(client: NodeClient, job_id: str, seconds: int) -> Answer:
    body = {"from": moment(1 - seconds), "to": moment(0), "dry_run": True}
    return client.post(f"/v1/jobs/{job_id}/backfill", body)


def crowd(client: NodeClient, number: int, **fields: Any) -> None:
    jobs = [{**EACH_SECOND, "name": str(n), **fields} for n in range(number)]
    assert client.post("/v1/jobs/batch", {"jobs": jobs}).status == 207


def test_no_step_of_a_backfill_looks_at_more_than_some_times(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]
    assert _longest_step(client, monkeypatch, lambda: backfill(client, job_id, 10_000)) <= 510


def test_no_step_of_a_list_of_times_looks_at_more_than_one_job(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mondays = [f"{NOON.date() + timedelta(days=12 + 7 * n)}" for n in range(366)]
    crowd(client, 30, cron_expression="* * * * * MON", exclude=mondays)
    path = f"/v1/schedules/upcoming?from={moment(10 * 86_400)}&to={moment(40 * 86_400)}"
    longest = _longest_step(client, monkeypatch, lambda: client.get(path))
    assert 366 <= longest <= 2 * 366


@pytest.mark.parametrize(
    ("expression", "apart", "most"), [("* * * * * *", 1, 100), ("* * * * * MON", 7, 40 * 366)]
)
def test_an_explanation_passes_over_excluded_days_whole(
    client: NodeClient,
    monkeypatch: pytest.MonkeyPatch,
    expression: str,
    apart: int,
    most: int,
) -> None:
    """Of a year of excluded days in a row, and of 366 that stand alone."""
    days = [f"{NOON.date() + timedelta(days=5 + apart * n)}" for n in range(366)]
    fields = {"cron_expression": expression, "exclude": days}
    job_id = submitted(client, {**EACH_SECOND, **fields})["job_id"]
    for at in (days[0], days[183], days[365]):
        path = f"/v1/jobs/{job_id}/explain?at={at}T12:00:00Z"
        assert _longest_step(client, monkeypatch, lambda path=path: client.get(path)) <= most


def _longest_step(client: NodeClient, monkeypatch: pytest.MonkeyPatch, call: Any) -> int:
    """How many local times are looked for between two looks at the clock, at most."""
    steps = [0]
    next_local = Calendar.next_local

    def counted(calendar: Calendar, local: int) -> int:
        steps[-1] += 1
        return next_local(calendar, local)

    class Counting(Processor):
        def __call__(self) -> float:
            steps.append(0)
            return super().__call__()

    client._app._long_work = LongWork(client._perform, Counting(0.0))
    monkeypatch.setattr(Calendar, "next_local", counted)
    assert call().status in (200, 422)
    return max(steps)


def test_a_batch_is_checked_a_job_at_a_time(client: NodeClient) -> None:
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE))
    crowd(client, 40)
    assert turns > 40


def test_what_takes_too_long_is_refused_with_advice(client: NodeClient) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]
    crowd(client, 3)
    paced(client, MAX_SECONDS / 2)
    for answer in (
        backfill(client, job_id, 900),
        client.get("/v1/schedules/upcoming"),
        client.post("/v1/jobs/batch", {"jobs": [EACH_SECOND] * 9}),
    ):
        assert (answer.status, answer.json["code"]) == (422, "TOO_MUCH_WORK")
        assert "2 s of processor time" in answer.json["detail"]


def test_runs_of_many_busy_jobs_are_read_in_slices(client: NodeClient) -> None:
    task = {"type": "http", "url": "http://127.0.0.1:1/"}
    at_once = {"name": "r", "schedule_type": "IMMEDIATE", "task": task}
    assert client.post("/v1/jobs/batch", {"jobs": [at_once] * 450}).status == 207
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE_SECONDS / 100))
    assert len(client.get("/v1/runs?limit=200").json["runs"]) == 200
    assert turns >= 4
    paced(client, MAX_SECONDS / 100)
    assert client.get("/v1/runs?limit=200").json["code"] == "TOO_MUCH_WORK"


def test_another_call_is_answered_between_two_slices(client: NodeClient) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]

    async def turn(request: Any) -> Any:
        await asyncio.sleep(0)
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE))
    body = {"from": moment(-900), "to": moment(0), "dry_run": True}
    order: list[str] = []

    async def call(name: str, method: str, path: str, body: bytes) -> int:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ],
        }
        answer = await client._call(scope, [body])
        order.append(name)
        return answer.status

    async def both() -> list[int]:
        long = call("long", "POST", f"/v1/jobs/{job_id}/backfill", json.dumps(body).encode())
        short = call("short", "GET", f"/v1/jobs/{job_id}", b"")
        return list(await asyncio.gather(long, short))

    assert asyncio.run(both()) == [200, 200]
    assert order == ["short", "long"]


def test_a_slice_that_was_undone_fails_its_own_request(client: NodeClient) -> None:
    crowd(client, 3)
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise Unavailable("The disk is full.")
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE))
    answer = client.get("/v1/schedules/upcoming")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert client.get("/v1/schedules/upcoming").status == 200
