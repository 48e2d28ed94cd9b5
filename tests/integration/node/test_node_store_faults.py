"""The node's store fails at each statement and commit: 503, and no partial change."""

import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from punctual.node.files.data_folder import DATABASE
from punctual.node.sqlite.store import Store
from tests.integration.web.test_http_engine import NodeClient
from tests.support.web_client import Answer

Json = Any
DAILY = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}
_NUMBERS = count(1)
FULL, BUSY, IO = sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR
_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


class FailingConnection:
    """A connection that fails from its n-th statement on. A full disk fails writes only."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.statement_count = 0
        self._code = 0
        self._first = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def fail(self, code: int, first: int) -> None:
        self.statement_count, self._code, self._first = 0, code, first

    def heal(self) -> None:
        self._code = 0

    @property
    def hit(self) -> bool:
        return self.statement_count > self._first

    def execute(self, text: str, *args: Any) -> Any:
        self._ask(text)
        return self._db.execute(text, *args)

    def executemany(self, text: str, *args: Any) -> Any:
        self._ask(text)
        return self._db.executemany(text, *args)

    def _ask(self, text: str) -> None:
        begun = text.lstrip().split(None, 1)[0].upper()
        if not self._code or begun == "ROLLBACK":
            return
        if self._code == IO or begun in _WRITES:
            self.statement_count += 1
            if self.statement_count > self._first:
                error = sqlite3.OperationalError("planted")
                error.sqlite_errorcode = self._code
                raise error


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def connection(client: NodeClient) -> FailingConnection:
    transaction = client.store._transaction
    connection = FailingConnection(transaction.db)
    transaction.db = connection  # type: ignore[assignment]
    return connection


def is_refused(answer: Answer) -> bool:
    if answer.status != 503:
        return False
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    assert (answer.json["status"], answer.json["code"]) == (503, "UNAVAILABLE")
    return True


def send(client: NodeClient, method: str, path: str, body: Json, key: str) -> Answer:
    if method == "GET":
        return client.get(path)
    return client.post(path, {} if body is None else body, idempotency_key=key)


def daily() -> Json:
    """Return a daily job with a name of its own."""
    return {**DAILY, "name": f"daily {next(_NUMBERS)}"}


def a_job(client: NodeClient, **fields: Json) -> str:
    answer = client.post("/v1/jobs", {**daily(), **fields})
    assert answer.status == 202, answer.body
    return str(answer.json["job_id"])


def a_run(client: NodeClient, job: str) -> str:
    return str(client.post(f"/v1/jobs/{job}/runNow", {"payload": 1}).json["run_id"])


def end_run(client: NodeClient) -> str:
    job = a_job(client)
    run = f"/v1/jobs/{job}/runs/{a_run(client, job)}"
    assert client.post(f"{run}/cancel", {}).status == 202
    return run


WRITES: dict[str, Callable[[NodeClient], tuple[str, Json]]] = {
    "submit": lambda _: ("/v1/jobs", daily()),
    "now": lambda _: ("/v1/jobs", {"name": "a", "schedule_type": "IMMEDIATE"}),
    "large": lambda _: ("/v1/jobs", {**daily(), "payload": "x" * 20_000}),
    "batch": lambda _: ("/v1/jobs/batch", {"jobs": [daily(), daily()]}),
    "order": lambda c: (f"/v1/jobs/{a_job(c)}/runNow", {"payload": 2}),
    "pause": lambda c: (f"/v1/jobs/{a_job(c)}/pause", {}),
    "retry": lambda c: (f"{end_run(c)}/retry", {}),
}


def list_jobs_and_runs(client: NodeClient) -> Json:
    """Return all jobs and runs that the API lists."""
    jobs = client.get("/v1/jobs?limit=200").json["jobs"]
    runs = client.get("/v1/runs?limit=200").json["runs"]
    return {job["job_id"]: job for job in jobs}, {run["run_id"]: run for run in runs}


def timers(store: Store) -> set[str]:
    return {row[0] for row in store._transaction.db.execute("SELECT job_id FROM timers")}


@pytest.mark.parametrize("code", [FULL, BUSY, IO], ids=["full", "locked", "I/O error"])
@pytest.mark.parametrize("name", sorted(WRITES))
def test_write_refused_by_the_disk_changes_nothing(
    client: NodeClient, connection: FailingConnection, name: str, code: int
) -> None:
    for first in count():
        path, body = WRITES[name](client)
        before, key = list_jobs_and_runs(client), f"{name}-{first}"
        connection.fail(code, first)
        answer = send(client, "POST", path, body, key)
        hit = connection.hit
        connection.heal()
        if not hit:
            assert answer.status in (200, 202, 207)
            break
        assert is_refused(answer), (first, answer.body)
        assert list_jobs_and_runs(client) == before
        retried = send(client, "POST", path, body, key)
        assert retried.status in (200, 202, 207), retried.body
        assert send(client, "POST", path, body, key).json == retried.json
        jobs, runs = list_jobs_and_runs(client)
        new_jobs = {"submit": 1, "now": 1, "large": 1, "batch": 2}.get(name, 0)
        assert len(jobs) - len(before[0]) == new_jobs
        assert len(runs) - len(before[1]) == (name in ("now", "order", "retry"))
        waiting = {job_id for job_id, job in jobs.items() if job["next_run_time"]}
        assert waiting <= timers(client.store)
    assert first > 1
    client.node.step()
    assert {run["status"] for run in list_jobs_and_runs(client)[1].values()} <= {
        "SUCCESS",
        "CANCELLED",
    }


def test_failed_read_is_refused_and_never_partial(
    client: NodeClient, connection: FailingConnection
) -> None:
    jobs = [a_job(client) for _ in range(3)]
    run = end_run(client)
    paths = (
        *("/v1/jobs", "/v1/jobs?limit=2", f"/v1/jobs/{jobs[0]}", f"/v1/jobs/{jobs[0]}/status"),
        *(run, f"{run.rpartition('/')[0]}", "/v1/runs", "/v1/schedules/upcoming", "/v1/stats"),
        f"/v1/jobs/{jobs[0]}/explain?at=2026-11-19T00:00:00Z",
    )
    for path in paths:
        right = client.get(path)
        refused = 0
        for first in count():
            connection.fail(IO, first)
            answer = client.get(path)
            hit = connection.hit
            connection.heal()
            if not hit:
                break
            assert is_refused(answer) or answer.json == right.json, (path, first, answer.body)
            refused += answer.status == 503
        assert client.get(path).json == right.json
        assert (right.status, refused > 0) == (200, first > 0), path


def test_full_disk_refuses_writes_and_answers_reads(client: NodeClient) -> None:
    job = a_job(client)
    db = client.store._transaction.db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    answers = [client.post("/v1/jobs", {**daily(), "payload": "x" * 8_000}) for _ in range(20)]
    full = [answer for answer in answers if answer.status != 202]
    assert full
    assert all(is_refused(answer) for answer in full)
    assert "disk is full" in full[0].json["detail"]
    stored_ids = {answer.json["job_id"] for answer in answers if answer.status == 202} | {job}
    assert {job_json["job_id"] for job_json in client.get("/v1/jobs").json["jobs"]} == stored_ids
    db.execute("PRAGMA max_page_count = 1000000")
    assert client.post("/v1/jobs", daily()).status == 202


def test_locked_store_refuses_writes_and_answers_reads(client: NodeClient, tmp_path: Path) -> None:
    job = a_job(client)
    client.store._transaction.db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        assert is_refused(client.post("/v1/jobs", daily()))
        assert is_refused(client.post(f"/v1/jobs/{job}/runNow", {}))
        assert client.get(f"/v1/jobs/{job}").status == 200
        assert [job_json["job_id"] for job_json in client.get("/v1/jobs").json["jobs"]] == [job]
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert client.post("/v1/jobs", daily()).status == 202
    assert len(client.get("/v1/jobs").json["jobs"]) == 2
