"""Requests whose answer takes long: cut into slices, bounded, and in nobody's way."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.schedules.cron.expression import Calendar
from punctual.engine.queries.slices import MAX_WORK_SECONDS, SLICE_SECONDS
from punctual.node.files.blobs import FileBlobs
from punctual.node.http.application import MAX_JOBS_PER_WRITE
from punctual.node.long_work import LongWork
from punctual.node.sqlite import job_states
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.web.routes.jobs_write import LARGE_PAYLOAD_WEIGHT
from tests.integration.web.test_http_engine import NOON, NodeClient, submitted
from tests.support.web_client import Answer

SLICE = 1.01 * SLICE_SECONDS
TASK = {"type": "http", "url": "http://127.0.0.1:1/"}
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
    longest = _longest_step(client, monkeypatch, LOCAL, lambda: backfill(client, job_id, 10_000))
    assert longest <= 510


def test_no_step_of_a_list_of_times_looks_at_more_than_one_job(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mondays = [f"{NOON.date() + timedelta(days=12 + 7 * n)}" for n in range(366)]
    crowd(client, 30, cron_expression="* * * * * MON", exclude=mondays)
    path = f"/v1/schedules/upcoming?from={moment(10 * 86_400)}&to={moment(40 * 86_400)}"
    longest = _longest_step(client, monkeypatch, LOCAL, lambda: client.get(path))
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
        longest = _longest_step(client, monkeypatch, LOCAL, lambda path=path: client.get(path))
        assert longest <= most


def test_no_step_of_a_list_of_jobs_reads_more_than_one_payload(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(client, 12, payload="x" * 9_000)
    longest = _longest_step(client, monkeypatch, BLOB, lambda: client.get("/v1/jobs"))
    assert longest == 1


def changed(client: NodeClient, job_id: str, times: int, **fields: str) -> None:
    for number in range(times):
        client.clock.set(client.clock.now + timedelta(seconds=1))
        body = {name: text.format(number) for name, text in fields.items()}
        sent = json.dumps(body).encode()
        assert client.call("PUT", f"/v1/jobs/{job_id}", sent).status == 200


@pytest.mark.parametrize(
    ("schedule", "change"),
    [
        (
            {"schedule_type": "CRON", "cron_expression": "59 0 * * *"},
            {"cron_expression": "{} 1 * * *"},
        ),
        ({"schedule_type": "INTERVAL", "interval_seconds": 60}, {"name": "other {}"}),
    ],
    ids=["schedules", "names"],
)
def test_no_step_of_an_explanation_reads_more_than_some_definitions(
    client: NodeClient,
    monkeypatch: pytest.MonkeyPatch,
    schedule: dict[str, Any],
    change: dict[str, str],
) -> None:
    job_id = submitted(client, {"name": "v", **schedule})["job_id"]
    changed(client, job_id, 40, **change)
    for query in ("", f"?at={moment(-86_400)}"):
        path = f"/v1/jobs/{job_id}/explain{query}"
        longest = _longest_step(client, monkeypatch, BODY, lambda path=path: client.get(path))
        assert longest <= 2


def test_no_step_of_a_retry_reads_more_than_some_definitions(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(client, {**EACH_SECOND, "cron_expression": "0 0 1 1 *"})["job_id"]
    run = client.post(f"/v1/jobs/{job_id}/runNow", {}).json
    client.node.step()
    changed(client, job_id, 40, name="other {}")
    path = f"/v1/jobs/{job_id}/runs/{run['run_id']}/retry"
    longest = _longest_step(client, monkeypatch, BODY, lambda: client.post(path))
    assert longest <= 3


LOCAL = (Calendar, "next_local")  # local times that are looked for
BLOB = (FileBlobs, "get")
BODY = (SqliteDefinitions, "get")  # definitions


def _longest_step(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch, work: tuple[type, str], call: Any
) -> int:
    """How often this is done between two looks at the clock, at most."""
    steps = [0]
    done = getattr(*work)

    def counted(*asked: Any) -> Any:
        steps[-1] += 1
        return done(*asked)

    class Counting(Processor):
        def __call__(self) -> float:
            steps.append(0)
            return super().__call__()

    client._app._long_work = LongWork(client._perform, Counting(0.0))
    with monkeypatch.context() as patch:
        patch.setattr(*work, counted)
        assert call().status in (200, 202, 422)
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


AT_ONCE = MAX_JOBS_PER_WRITE // LARGE_PAYLOAD_WEIGHT


@pytest.mark.parametrize(
    ("number", "payload", "most"), [(250, "x", MAX_JOBS_PER_WRITE), (12, "x" * 9_000, AT_ONCE)]
)
def test_a_batch_is_stored_some_jobs_at_a_time(
    client: NodeClient, number: int, payload: str, most: int
) -> None:
    counts = [0]

    async def turn(request: Any) -> Any:
        answer = await client._perform(request)
        counts.append(sum(client.store.count_jobs("local").values()))
        return answer

    client._app._long_work = LongWork(turn, Processor(0.0), Processor(SLICE))
    crowd(client, number, payload=payload)
    assert counts[-1] == number
    assert max(after - before for before, after in itertools.pairwise(counts)) == most


def test_a_batch_whose_time_is_over_says_which_jobs_it_stored(client: NodeClient) -> None:
    stored = client.store.count_jobs

    class Costly(Processor):
        """Work is cheap until the first job stands."""

        def __call__(self) -> float:
            self.seconds = MAX_WORK_SECONDS if stored("local") else SLICE
            return super().__call__()

    client._app._long_work = LongWork(client._perform, Costly(0.0))
    large = {**EACH_SECOND, "payload": "x" * 9_000}
    batch = {"jobs": [{**large, "name": str(n)} for n in range(12)]}
    results = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert [one["status"] for one in results] == [202] * AT_ONCE + [422] * (12 - AT_ONCE)
    assert {one["problem"]["code"] for one in results[AT_ONCE:]} == {"TOO_MUCH_WORK"}
    assert stored("local") == {"SCHEDULED": AT_ONCE}
    client._app._long_work = LongWork(client._perform)
    again = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert again[:AT_ONCE] == results[:AT_ONCE]
    assert [one["status"] for one in again] == [202] * 12
    assert stored("local") == {"SCHEDULED": 12}


def test_a_batch_of_which_a_part_was_undone_is_made_once_when_it_is_repeated(
    client: NodeClient,
) -> None:
    stored = client.store.count_jobs

    async def turn(request: Any) -> Any:
        if stored("local"):
            raise Unavailable("The disk is full.")
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE))
    large = {**EACH_SECOND, "payload": "x" * 9_000}
    batch = {"jobs": [{**large, "name": str(n)} for n in range(12)]}
    answer = client.post("/v1/jobs/batch", batch, idempotency_key="k")
    assert (answer.status, stored("local")) == (503, {"SCHEDULED": AT_ONCE})
    client._app._long_work = LongWork(client._perform)
    results = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert len({one["job_id"] for one in results}) == 12
    assert stored("local") == {"SCHEDULED": 12}


def test_no_step_of_a_list_of_runs_looks_at_more_than_some_busy_jobs(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In SQLite's own instructions, of which each row takes some."""
    monkeypatch.setattr(job_states, "_BUSY_PAGE_SIZE", 20)
    at_once = {"name": "r", "schedule_type": "IMMEDIATE", "task": TASK}
    assert client.post("/v1/jobs/batch", {"jobs": [at_once] * 400}).status == 207
    steps = [0]

    def instruction() -> int:
        steps[-1] += 1
        return 0

    class Counting(Processor):
        def __call__(self) -> float:
            steps.append(0)
            return super().__call__()

    client._app._long_work = LongWork(client._perform, Counting(0.0))
    client.store._db.set_progress_handler(instruction, 1)
    answer = client.get("/v1/runs?limit=1")
    client.store._db.set_progress_handler(None, 1)
    assert len(answer.json["runs"]) == 1
    assert 20 < max(steps) < 400


def test_what_takes_too_long_is_refused_with_advice(client: NodeClient) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]
    crowd(client, 3)
    paced(client, MAX_WORK_SECONDS / 2)
    for answer in (
        backfill(client, job_id, 900),
        client.get("/v1/schedules/upcoming"),
        client.post("/v1/jobs/batch", {"jobs": [EACH_SECOND] * 9}),
    ):
        assert (answer.status, answer.json["code"]) == (422, "TOO_MUCH_WORK")
        assert "2 s of processor time" in answer.json["detail"]


def test_runs_of_many_busy_jobs_are_read_in_slices(client: NodeClient) -> None:
    at_once = {"name": "r", "schedule_type": "IMMEDIATE", "task": TASK}
    assert client.post("/v1/jobs/batch", {"jobs": [at_once] * 450}).status == 207
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        return await client._perform(request)

    client._app._long_work = LongWork(turn, Processor(SLICE_SECONDS / 100))
    assert len(client.get("/v1/runs?limit=200").json["runs"]) == 200
    assert turns >= 4
    paced(client, MAX_WORK_SECONDS / 100)
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
