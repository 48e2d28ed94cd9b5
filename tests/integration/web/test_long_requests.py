"""Requests that take long are cut into slices and limited, and delay no other request."""

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
    """A clock that advances by `seconds` at each reading. One step of work reads it once."""

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


def set_pace(client: NodeClient, seconds: float) -> None:
    client.application._long_work = LongWork(client.perform, Processor(seconds))


def time_text(seconds: float) -> str:
    at = NOON + timedelta(seconds=seconds)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def backfill(client: NodeClient, job_id: str, seconds: int) -> Answer:
    body = {"from": time_text(1 - seconds), "to": time_text(0), "dry_run": True}
    return client.post(f"/v1/jobs/{job_id}/backfill", body)


def submit_batch(client: NodeClient, number: int, **fields: Any) -> None:
    jobs = [{**EACH_SECOND, "name": str(n), **fields} for n in range(number)]
    assert client.post("/v1/jobs/batch", {"jobs": jobs}).status == 207


def test_step_of_a_backfill_computes_limited_times(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]
    longest = _longest_step(
        client, monkeypatch, LOCAL_TIMES, lambda: backfill(client, job_id, 10_000)
    )
    assert longest <= 510


def test_step_of_upcoming_runs_reads_one_job(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mondays = [f"{NOON.date() + timedelta(days=12 + 7 * n)}" for n in range(366)]
    submit_batch(client, 30, cron_expression="* * * * * MON", exclude=mondays)
    path = f"/v1/schedules/upcoming?from={time_text(10 * 86_400)}&to={time_text(40 * 86_400)}"
    longest = _longest_step(client, monkeypatch, LOCAL_TIMES, lambda: client.get(path))
    assert 366 <= longest <= 2 * 366


@pytest.mark.parametrize(
    ("expression", "apart", "limit"), [("* * * * * *", 1, 100), ("* * * * * MON", 7, 40 * 366)]
)
def test_explain_skips_excluded_days_as_a_whole(
    client: NodeClient,
    monkeypatch: pytest.MonkeyPatch,
    expression: str,
    apart: int,
    limit: int,
) -> None:
    """The excluded days are a year in a row, or 366 separate days."""
    days = [f"{NOON.date() + timedelta(days=5 + apart * n)}" for n in range(366)]
    fields = {"cron_expression": expression, "exclude": days}
    job_id = submitted(client, {**EACH_SECOND, **fields})["job_id"]
    for at in (days[0], days[183], days[365]):
        path = f"/v1/jobs/{job_id}/explain?at={at}T12:00:00Z"
        longest = _longest_step(
            client, monkeypatch, LOCAL_TIMES, lambda path=path: client.get(path)
        )
        assert longest <= limit


def test_step_of_a_job_list_reads_one_payload(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_batch(client, 12, payload="x" * 9_000)
    longest = _longest_step(client, monkeypatch, PAYLOADS, lambda: client.get("/v1/jobs"))
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
def test_step_of_explain_reads_limited_definitions(
    client: NodeClient,
    monkeypatch: pytest.MonkeyPatch,
    schedule: dict[str, Any],
    change: dict[str, str],
) -> None:
    job_id = submitted(client, {"name": "v", **schedule})["job_id"]
    changed(client, job_id, 40, **change)
    for query in ("", f"?at={time_text(-86_400)}"):
        path = f"/v1/jobs/{job_id}/explain{query}"
        longest = _longest_step(
            client, monkeypatch, DEFINITIONS, lambda path=path: client.get(path)
        )
        assert longest <= 2


def test_step_of_a_retry_reads_limited_definitions(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(client, {**EACH_SECOND, "cron_expression": "0 0 1 1 *"})["job_id"]
    run = client.post(f"/v1/jobs/{job_id}/runNow", {}).json
    client.node.step()
    changed(client, job_id, 40, name="other {}")
    path = f"/v1/jobs/{job_id}/runs/{run['run_id']}/retry"
    longest = _longest_step(client, monkeypatch, DEFINITIONS, lambda: client.post(path))
    assert longest <= 3


LOCAL_TIMES = (Calendar, "next_local")  # computed local times
PAYLOADS = (FileBlobs, "get")
DEFINITIONS = (SqliteDefinitions, "get")


def _longest_step(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch, work: tuple[type, str], call: Any
) -> int:
    """Return how often `work` is done between two readings of the clock, at most."""
    steps = [0]
    original = getattr(*work)

    def counted(*args: Any) -> Any:
        steps[-1] += 1
        return original(*args)

    class Counting(Processor):
        def __call__(self) -> float:
            steps.append(0)
            return super().__call__()

    client.application._long_work = LongWork(client.perform, Counting(0.0))
    with monkeypatch.context() as patch:
        patch.setattr(*work, counted)
        assert call().status in (200, 202, 422)
    return max(steps)


def test_batch_is_checked_job_by_job(client: NodeClient) -> None:
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        return await client.perform(request)

    client.application._long_work = LongWork(turn, Processor(SLICE))
    submit_batch(client, 40)
    assert turns > 40


LARGE_JOBS_PER_WRITE = MAX_JOBS_PER_WRITE // LARGE_PAYLOAD_WEIGHT


@pytest.mark.parametrize(
    ("number", "payload", "limit"),
    [(250, "x", MAX_JOBS_PER_WRITE), (12, "x" * 9_000, LARGE_JOBS_PER_WRITE)],
)
def test_batch_is_stored_in_steps(
    client: NodeClient, number: int, payload: str, limit: int
) -> None:
    counts = [0]

    async def turn(request: Any) -> Any:
        answer = await client.perform(request)
        counts.append(sum(client.store.count_jobs("local").values()))
        return answer

    client.application._long_work = LongWork(turn, Processor(0.0), Processor(SLICE))
    submit_batch(client, number, payload=payload)
    assert counts[-1] == number
    assert max(after - before for before, after in itertools.pairwise(counts)) == limit


def test_batch_over_its_time_limit_names_the_stored_jobs(client: NodeClient) -> None:
    stored = client.store.count_jobs

    class Costly(Processor):
        """Work is cheap until the first job is stored."""

        def __call__(self) -> float:
            self.seconds = MAX_WORK_SECONDS if stored("local") else SLICE
            return super().__call__()

    client.application._long_work = LongWork(client.perform, Costly(0.0))
    large = {**EACH_SECOND, "payload": "x" * 9_000}
    batch = {"jobs": [{**large, "name": str(n)} for n in range(12)]}
    results = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert [result["status"] for result in results] == [202] * LARGE_JOBS_PER_WRITE + [422] * (
        12 - LARGE_JOBS_PER_WRITE
    )
    assert {result["problem"]["code"] for result in results[LARGE_JOBS_PER_WRITE:]} == {
        "TOO_MUCH_WORK"
    }
    assert stored("local") == {"SCHEDULED": LARGE_JOBS_PER_WRITE}
    client.application._long_work = LongWork(client.perform)
    repeated = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert repeated[:LARGE_JOBS_PER_WRITE] == results[:LARGE_JOBS_PER_WRITE]
    assert [result["status"] for result in repeated] == [202] * 12
    assert stored("local") == {"SCHEDULED": 12}


def test_batch_with_a_failed_step_is_completed_by_its_key(
    client: NodeClient,
) -> None:
    stored = client.store.count_jobs

    async def turn(request: Any) -> Any:
        if stored("local"):
            raise Unavailable("The disk is full.")
        return await client.perform(request)

    client.application._long_work = LongWork(turn, Processor(SLICE))
    large = {**EACH_SECOND, "payload": "x" * 9_000}
    batch = {"jobs": [{**large, "name": str(n)} for n in range(12)]}
    answer = client.post("/v1/jobs/batch", batch, idempotency_key="k")
    assert (answer.status, stored("local")) == (503, {"SCHEDULED": LARGE_JOBS_PER_WRITE})
    client.application._long_work = LongWork(client.perform)
    results = client.post("/v1/jobs/batch", batch, idempotency_key="k").json["results"]
    assert len({result["job_id"] for result in results}) == 12
    assert stored("local") == {"SCHEDULED": 12}


def test_step_of_a_run_list_reads_limited_active_jobs(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's instructions are counted. Each row takes some of them."""
    monkeypatch.setattr(job_states, "_BUSY_PAGE_SIZE", 20)
    immediate = {"name": "r", "schedule_type": "IMMEDIATE", "task": TASK}
    assert client.post("/v1/jobs/batch", {"jobs": [immediate] * 400}).status == 207
    steps = [0]

    def instruction() -> int:
        steps[-1] += 1
        return 0

    class Counting(Processor):
        def __call__(self) -> float:
            steps.append(0)
            return super().__call__()

    client.application._long_work = LongWork(client.perform, Counting(0.0))
    client.store._db.set_progress_handler(instruction, 1)
    answer = client.get("/v1/runs?limit=1")
    client.store._db.set_progress_handler(None, 1)
    assert len(answer.json["runs"]) == 1
    assert 20 < max(steps) < 400


def test_request_over_the_work_limit_is_refused_with_advice(client: NodeClient) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]
    submit_batch(client, 3)
    set_pace(client, MAX_WORK_SECONDS / 2)
    for answer in (
        backfill(client, job_id, 900),
        client.get("/v1/schedules/upcoming"),
        client.post("/v1/jobs/batch", {"jobs": [EACH_SECOND] * 9}),
    ):
        assert (answer.status, answer.json["code"]) == (422, "TOO_MUCH_WORK")
        assert "2 s of processor time" in answer.json["detail"]


def test_runs_of_many_active_jobs_are_read_in_slices(client: NodeClient) -> None:
    immediate = {"name": "r", "schedule_type": "IMMEDIATE", "task": TASK}
    assert client.post("/v1/jobs/batch", {"jobs": [immediate] * 450}).status == 207
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        return await client.perform(request)

    client.application._long_work = LongWork(turn, Processor(SLICE_SECONDS / 100))
    assert len(client.get("/v1/runs?limit=200").json["runs"]) == 200
    assert turns >= 4
    set_pace(client, MAX_WORK_SECONDS / 100)
    assert client.get("/v1/runs?limit=200").json["code"] == "TOO_MUCH_WORK"


def test_other_request_is_answered_between_two_slices(client: NodeClient) -> None:
    job_id = submitted(client, EACH_SECOND)["job_id"]

    async def turn(request: Any) -> Any:
        await asyncio.sleep(0)
        return await client.perform(request)

    client.application._long_work = LongWork(turn, Processor(SLICE))
    body = {"from": time_text(-900), "to": time_text(0), "dry_run": True}
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


def test_failed_slice_fails_only_its_request(client: NodeClient) -> None:
    submit_batch(client, 3)
    turns = 0

    async def turn(request: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 2:
            raise Unavailable("The disk is full.")
        return await client.perform(request)

    client.application._long_work = LongWork(turn, Processor(SLICE))
    answer = client.get("/v1/schedules/upcoming")
    assert (answer.status, answer.json["code"]) == (503, "UNAVAILABLE")
    assert client.get("/v1/schedules/upcoming").status == 200
