"""The audit on the node: an entry commits in the transaction of its change."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import Unavailable
from punctual.engine.commands.audit import ACTIONS, LIMITS_CHANGE
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.audit_log import Actor, AuditFilters, Note
from punctual.node.http.application import MAX_JOBS_PER_WRITE
from punctual.node.sqlite.audit import MAX_SUBJECTS_PER_ROW
from punctual.node.sqlite.rows import to_micros
from punctual.node.sqlite.store import Store
from punctual.web.contract import API_CALLS, WRITE_FUNCTION
from tests.integration.web.test_http_engine import CRON, NOON, NodeClient
from tests.support.builders import ManualClock

ADA = Actor("ada", "t", "192.0.2.1", "r")
JOB = {"name": "a", "schedule_type": "FUTURE", "schedule_time": "2026-12-01T10:00:00.000Z"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    yield client
    client.close()
    client.store.close()


def entries(node: NodeClient, query: str = "") -> list[dict[str, Any]]:
    """Read all entries page by page, and return them oldest first."""
    rows: list[dict[str, Any]] = []
    token = ""
    while True:
        answer = node.get(f"/v1/audit?limit=3{query}&next_token={token}")
        assert answer.status == 200, answer.body
        rows += answer.json["entries"]
        token = answer.json["next_token"]
        if not token:
            return rows[::-1]


def actions(node: NodeClient) -> list[str]:
    return [entry["action"] for entry in entries(node)]


def submit(node: NodeClient, value: Any = CRON, **headers: str) -> str:
    answer = node.post("/v1/jobs", value, **headers)
    assert answer.status == 202, answer.body
    return str(answer.json["job_id"])


class Changes(NamedTuple):
    """What the answers to one change of each kind named."""

    run_id: str
    retry_id: str
    token: dict[str, Any]


def make_each_change(node: NodeClient) -> Changes:
    """Create, change, pause, resume, run and cancel a job, and create and revoke a token."""
    at_time = NOON
    node.clock.set(at_time)
    job = f"/v1/jobs/{submit(node)}"

    def call_later(method: str, target: str, value: Any = None) -> Any:
        nonlocal at_time
        at_time += timedelta(seconds=1)
        node.clock.set(at_time)
        body = None if value is None else _encoded(value)
        answer = node.call(method, target, body)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json

    call_later("PATCH", job, {"priority": "HIGH"})
    call_later("POST", f"{job}/pause")
    call_later("POST", f"{job}/resume", {"missed": "SKIP"})
    run_id = call_later("POST", f"{job}/runNow", {"payload": {"secret": "s"}})["run_id"]
    call_later("POST", f"{job}/runs/{run_id}/cancel")
    retry_id = call_later("POST", f"{job}/runs/{run_id}/retry")["run_id"]
    call_later("DELETE", job)
    token = call_later("POST", "/v1/tokens", {"name": "ci", "role": "viewer", "expires_at": None})
    call_later("DELETE", f"/v1/tokens/{token['token_id']}")
    return Changes(run_id, retry_id, token)


def test_each_change_has_one_audit_entry_in_order(node: NodeClient) -> None:
    make_each_change(node)
    rows = entries(node)
    assert [entry["action"] for entry in rows] == [
        "job.create",
        "job.update",
        "job.pause",
        "job.resume",
        "run.order",
        "run.cancel",
        "run.retry",
        "job.cancel",
        "token.create",
        "token.revoke",
    ]
    assert rows == sorted(rows, key=lambda entry: str(entry["audit_id"]))


def test_audit_entry_shows_the_fields_before_and_after_the_change(node: NodeClient) -> None:
    changes = make_each_change(node)
    entry_of = {entry["action"]: entry for entry in entries(node)}
    assert entry_of["job.create"]["after"] == CRON
    assert entry_of["job.update"]["before"] == {"priority": "NORMAL"}
    assert entry_of["job.update"]["after"] == {"priority": "HIGH"}
    assert entry_of["job.pause"]["before"] == {"status": "SCHEDULED"}
    assert entry_of["job.pause"]["after"] == {"status": "PAUSED"}
    assert entry_of["job.resume"]["after"] == {"missed": "SKIP", "status": "SCHEDULED"}
    assert entry_of["run.order"]["run_id"] == changes.run_id
    assert entry_of["run.order"]["after"] == {"payload_given": True}
    assert entry_of["run.cancel"]["run_id"] == changes.run_id
    assert entry_of["run.retry"]["run_id"] == changes.retry_id
    assert entry_of["run.retry"]["after"] == {
        "retried_from": changes.run_id,
        "payload_given": False,
    }
    assert entry_of["job.cancel"]["after"] == {"status": "CANCELLED"}
    assert entry_of["token.create"]["subject_token_id"] == changes.token["token_id"]
    assert entry_of["token.create"]["after"]["name"] == "ci"


def test_audit_names_caller_and_request_but_no_secret(node: NodeClient) -> None:
    changes = make_each_change(node)
    rows = entries(node)
    assert changes.token["token"] not in str(rows)
    assert "'s'" not in str(rows)
    assert {entry["caller"] for entry in rows} == {"local"}
    assert len({entry["request_id"] for entry in rows}) == len(rows)


def test_backfill_is_one_audit_entry_with_a_count(node: NodeClient) -> None:
    job = submit(node, {**CRON, "start_time": "2026-11-18T11:00:00Z"})
    period = {"from": "2026-11-18T11:00:00Z", "to": "2026-11-18T11:30:00Z"}
    answer = node.post(f"/v1/jobs/{job}/backfill", {**period, "dry_run": True})
    assert (answer.status, actions(node)) == (200, ["job.create"])
    assert node.post(f"/v1/jobs/{job}/backfill", period).json == {"runs": 3}
    entry = entries(node)[-1]
    assert (entry["action"], entry["count"]) == ("job.backfill", 3)
    assert entry["after"] == {
        "from": "2026-11-18T11:00:00.000Z",
        "to": "2026-11-18T11:30:00.000Z",
    }


def test_call_that_changes_nothing_adds_no_audit_entry(node: NodeClient) -> None:
    key = {"idempotency_key": "one"}
    job = submit(node, CRON, **key)
    assert submit(node, CRON, **key) == job
    for method, target, value in (
        ("PATCH", "", {}),
        ("PATCH", "", {"name": "a", "cron_expression": CRON["cron_expression"]}),
        ("POST", "/pause", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/resume", None),
        ("DELETE", "", None),
        ("DELETE", "", None),
    ):
        body = None if value is None else _encoded(value)
        assert node.call(method, f"/v1/jobs/{job}{target}", body).status == 200
    assert actions(node) == ["job.create", "job.pause", "job.resume", "job.cancel"]


def test_run_requested_twice_with_one_key_has_one_audit_entry(node: NodeClient) -> None:
    job = submit(node)
    for _ in range(2):
        answer = node.post(f"/v1/jobs/{job}/runNow", {}, idempotency_key="k")
        assert answer.status == 202
    assert actions(node) == ["job.create", "run.order"]


def test_refused_call_adds_no_audit_entry(node: NodeClient) -> None:
    job = submit(node)
    node.call("DELETE", f"/v1/jobs/{job}")
    before = actions(node)
    unknown_id = "01939f6a-7b12-7000-8000-000000000000"
    for method, target, value, status in (
        ("POST", "/v1/jobs", {"name": "x"}, 422),
        ("PATCH", f"/v1/jobs/{job}", {"name": "b"}, 409),
        ("POST", f"/v1/jobs/{job}/pause", None, 409),
        ("POST", f"/v1/jobs/{job}/runNow", {}, 409),
        ("POST", f"/v1/jobs/{unknown_id}/runNow", {}, 404),
        ("POST", f"/v1/jobs/{job}/runs/{unknown_id}/cancel", None, 404),
        ("DELETE", f"/v1/tokens/{unknown_id}", None, 404),
        ("POST", "/v1/tokens", {"name": "", "role": "king"}, 422),
    ):
        body = None if value is None else _encoded(value)
        assert node.call(method, target, body).status == status, target
    assert node.call("PATCH", f"/v1/jobs/{job}", _encoded({}), {"if_match": '"9"'}).status == 412
    assert actions(node) == before


def test_batch_adds_one_audit_entry_for_each_accepted_job(node: NodeClient) -> None:
    jobs = [{**JOB, "name": f"n{n}"} for n in range(499)]
    answer = node.post("/v1/jobs/batch", {"jobs": [*jobs, {"name": "wrong"}]})
    accepted = [entry["job_id"] for entry in answer.json["results"] if entry["status"] == 202]
    assert len(accepted) == 499
    rows_read = entries(node)
    assert {entry["job_id"] for entry in rows_read} == set(accepted)
    assert len(rows_read) == 499
    assert len({entry["request_id"] for entry in rows_read}) == 1
    (rows,) = node.store._db.execute("SELECT count(*) FROM audit").fetchone()
    assert rows <= 499 // MAX_JOBS_PER_WRITE + 1  # a row for all that one transaction holds
    (entry,) = entries(node, f"&job_id={accepted[7]}")
    assert entry["after"]["name"] == "n7"


def submit_one(node: NodeClient) -> None:
    node.node.jobs.submit("local", "ada", [Submission(JOB)], ADA)


def test_rolled_back_change_adds_no_audit_entry(node: NodeClient) -> None:
    class PlannedError(Exception):
        pass

    def submit_and_fail() -> None:
        with node.store.transaction():
            submit_one(node)
            assert len(stored_entries(node.store, node.clock())) == 1
            raise PlannedError

    with pytest.raises(PlannedError):
        submit_and_fail()
    assert stored_entries(node.store, node.clock()) == []
    assert node.get("/v1/jobs").json["jobs"] == []


@pytest.mark.parametrize("at", ["INSERT INTO heads", "INSERT INTO audit", "COMMIT"])
def test_failed_write_rolls_back_change_and_audit_entry(
    node: NodeClient, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    transaction = node.store.transaction()
    monkeypatch.setattr(transaction, "db", FailingConnection(transaction.db, at))
    with pytest.raises(Unavailable):
        node.node.perform([lambda: submit_one(node)])
    monkeypatch.undo()
    assert stored_entries(node.store, node.clock()) == []
    assert node.get("/v1/jobs").json["jobs"] == []
    node.node.perform([lambda: submit_one(node)])
    assert len(stored_entries(node.store, node.clock())) == 1
    assert len(node.get("/v1/jobs").json["jobs"]) == 1


class FailingConnection:
    """A connection on which statements that start with `at` fail."""

    def __init__(self, db: Any, at: str) -> None:
        self._db = db
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, statement: str, *rest: Any) -> Any:
        return self._run(self._db.execute, statement, *rest)

    def executemany(self, statement: str, *rest: Any) -> Any:
        return self._run(self._db.executemany, statement, *rest)

    def _run(self, run: Callable[..., Any], statement: str, *rest: Any) -> Any:
        if " ".join(statement.split()).startswith(self._at):
            raise sqlite3.OperationalError("planted")
        return run(statement, *rest)


def test_audit_entries_survive_a_restart_and_expire_with_runs(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    first = NodeClient(tmp_path)
    submit_one(first)
    first.close()
    first.store.close()
    store = Store.open(tmp_path, clock)
    assert [stored.note.actor for stored in stored_entries(store, NOON)] == [ADA]
    store.purge(NOON + HISTORY_RETENTION - timedelta(seconds=1), 100)
    assert len(stored_entries(store, NOON)) == 1
    store.purge(NOON + HISTORY_RETENTION, 100)
    assert stored_entries(store, NOON) == []
    store.close()


def test_audit_entries_of_a_clock_far_ahead_do_not_delay_purging(tmp_path: Path) -> None:
    store = Store.open(tmp_path, ManualClock(NOON))
    ahead = NOON + timedelta(days=3_650)
    for at in (*[ahead] * 5, NOON, NOON + timedelta(days=10), NOON + timedelta(days=1)):
        with store.transaction():  # a row each
            store.audit.add_note("local", Note(ADA, "token.create", at, "", at.isoformat()))
    while store.purge(NOON + HISTORY_RETENTION + timedelta(days=1), 2):
        pass
    kept = [to_micros(ahead)] * 5 + [to_micros(NOON + timedelta(days=10))]
    assert store._db.execute("SELECT latest FROM audit ORDER BY id").fetchall() == [
        (at,) for at in kept
    ]
    store.close()


def test_audit_entries_of_one_commit_use_rows_of_bounded_size(node: NodeClient) -> None:
    submissions = [Submission(JOB)] * (MAX_SUBJECTS_PER_ROW + 1)
    node.node.perform([lambda: node.node.jobs.submit("local", "ada", submissions, ADA)])
    (rows,) = node.store._db.execute("SELECT count(*) FROM audit").fetchone()
    assert rows == 2
    assert len(stored_entries(node.store, node.clock())) == MAX_SUBJECTS_PER_ROW + 1


def test_each_writing_call_has_an_audit_action(node: NodeClient) -> None:
    """A new call that writes needs an action in this list."""
    writing = {(call.method, call.path) for call in API_CALLS if call.function == WRITE_FUNCTION}
    writing -= {("GET", "/secrets")}  # the list writes nothing
    by_calls = [action for action in ACTIONS if action != LIMITS_CHANGE]
    assert len(writing) == len(by_calls) + 2, "PUT beside PATCH, and /jobs/batch beside /jobs"


@pytest.mark.parametrize(
    "query",
    ["action=job.delete", "job_id=x", "from=yesterday", "limit=0", "next_token=AAAA", "user=ada"],
)
def test_invalid_audit_filter_is_refused_by_name(node: NodeClient, query: str) -> None:
    answer = node.get(f"/v1/audit?{query}")
    assert answer.status == 422
    assert list(answer.fields) == [query.partition("=")[0]]


def test_page_token_is_valid_only_for_its_filters(node: NodeClient) -> None:
    for number in range(3):
        submit(node, {**CRON, "name": f"a{number}"})
    token = node.get("/v1/audit?limit=1").json["next_token"]
    assert node.get(f"/v1/audit?limit=1&caller=ada&next_token={token}").status == 422
    assert node.get(f"/v1/audit?limit=2&next_token={token}").status == 200


def stored_entries(store: Store, now: datetime) -> list[Any]:
    return list(store.audit.page("local", AuditFilters(), 1_000, None, now).entries)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
