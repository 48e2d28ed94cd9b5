"""The audit on the node: in the transaction of the change, or not at all."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import Unavailable
from punctual.engine.commands.audit import ACTIONS, LIMITS_CHANGE
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.audit_log import Actor, AuditFilters, Note
from punctual.node.clock import ManualClock
from punctual.node.http.application import MAX_JOBS_PER_WRITE
from punctual.node.sqlite.audit import MAX_SUBJECTS_PER_ROW
from punctual.node.sqlite.codec import to_micros
from punctual.node.sqlite.store import Store
from punctual.web.contract import API_CALLS, WRITE_FUNCTION
from tests.integration.web.test_http_engine import CRON, NOON, NodeClient

ADA = Actor("ada", "t", "192.0.2.1", "r")
JOB = {"name": "a", "schedule_type": "FUTURE", "schedule_time": "2026-12-01T10:00:00.000Z"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeClient]:
    made = NodeClient(tmp_path)
    yield made
    made.close()
    made.store.close()


def entries(node: NodeClient, query: str = "") -> list[dict[str, Any]]:
    """All of them, oldest first, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        answer = node.get(f"/v1/audit?limit=3{query}&next_token={token}")
        assert answer.status == 200, answer.body
        found += answer.json["entries"]
        token = answer.json["next_token"]
        if not token:
            return found[::-1]


def actions(node: NodeClient) -> list[str]:
    return [one["action"] for one in entries(node)]


def submit(node: NodeClient, value: Any = CRON, **headers: str) -> str:
    answer = node.post("/v1/jobs", value, **headers)
    assert answer.status == 202, answer.body
    return str(answer.json["job_id"])


def test_every_change_is_noted_once_in_its_order(node: NodeClient) -> None:
    node.clock.set(NOON)
    job = f"/v1/jobs/{submit(node)}"
    moment = NOON

    def later(method: str, target: str, value: Any = None) -> Any:
        nonlocal moment
        moment += timedelta(seconds=1)
        node.clock.set(moment)
        body = None if value is None else _encoded(value)
        answer = node.call(method, target, body)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json

    later("PATCH", job, {"priority": "HIGH"})
    later("POST", f"{job}/pause")
    later("POST", f"{job}/resume", {"missed": "SKIP"})
    ran = later("POST", f"{job}/runNow", {"payload": {"secret": "s"}})["run_id"]
    later("POST", f"{job}/runs/{ran}/cancel")
    again = later("POST", f"{job}/runs/{ran}/retry")["run_id"]
    later("DELETE", job)
    token = later("POST", "/v1/tokens", {"name": "ci", "role": "viewer", "expires_at": None})
    later("DELETE", f"/v1/tokens/{token['token_id']}")
    found = entries(node)
    assert [one["action"] for one in found] == [
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
    told = {one["action"]: one for one in found}
    assert told["job.create"]["after"] == CRON
    assert told["job.update"]["before"] == {"priority": "NORMAL"}
    assert told["job.update"]["after"] == {"priority": "HIGH"}
    assert told["job.pause"]["before"] == {"status": "SCHEDULED"}
    assert told["job.pause"]["after"] == {"status": "PAUSED"}
    assert told["job.resume"]["after"] == {"missed": "SKIP", "status": "SCHEDULED"}
    assert (told["run.order"]["run_id"], told["run.order"]["after"]) == (
        ran,
        {"payload_given": True},
    )
    assert told["run.cancel"]["run_id"] == ran
    assert (told["run.retry"]["run_id"], told["run.retry"]["after"]) == (
        again,
        {"retried_from": ran},
    )
    assert told["job.cancel"]["after"] == {"status": "CANCELLED"}
    made = told["token.create"]
    assert (made["subject_token_id"], made["after"]["name"]) == (token["token_id"], "ci")
    assert token["token"] not in str(found)
    assert "'s'" not in str(found)
    assert {one["caller"] for one in found} == {"local"}
    assert len({one["request_id"] for one in found}) == len(found)
    assert found == sorted(found, key=lambda one: str(one["audit_id"]))


def test_a_backfill_is_one_entry_that_counts(node: NodeClient) -> None:
    job = submit(node, {**CRON, "start_time": "2026-11-18T11:00:00Z"})
    asked = {"from": "2026-11-18T11:00:00Z", "to": "2026-11-18T11:30:00Z"}
    answer = node.post(f"/v1/jobs/{job}/backfill", {**asked, "dry_run": True})
    assert (answer.status, actions(node)) == (200, ["job.create"])
    assert node.post(f"/v1/jobs/{job}/backfill", asked).json == {"runs": 3}
    noted = entries(node)[-1]
    assert (noted["action"], noted["count"]) == ("job.backfill", 3)
    assert noted["after"] == {"from": "2026-11-18T11:00:00.000Z", "to": "2026-11-18T11:30:00.000Z"}


def test_what_changes_nothing_leaves_no_second_line(node: NodeClient) -> None:
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


def test_an_order_asked_twice_with_one_key_is_noted_once(node: NodeClient) -> None:
    job = submit(node)
    for _ in range(2):
        answer = node.post(f"/v1/jobs/{job}/runNow", {}, idempotency_key="k")
        assert answer.status == 202
    assert actions(node) == ["job.create", "run.order"]


def test_a_refusal_leaves_no_line(node: NodeClient) -> None:
    job = submit(node)
    node.call("DELETE", f"/v1/jobs/{job}")
    before = actions(node)
    nobody = "01939f6a-7b12-7000-8000-000000000000"
    for method, target, value, status in (
        ("POST", "/v1/jobs", {"name": "x"}, 422),
        ("PATCH", f"/v1/jobs/{job}", {"name": "b"}, 409),
        ("POST", f"/v1/jobs/{job}/pause", None, 409),
        ("POST", f"/v1/jobs/{job}/runNow", {}, 409),
        ("POST", f"/v1/jobs/{nobody}/runNow", {}, 404),
        ("POST", f"/v1/jobs/{job}/runs/{nobody}/cancel", None, 404),
        ("DELETE", f"/v1/tokens/{nobody}", None, 404),
        ("POST", "/v1/tokens", {"name": "", "role": "king"}, 422),
    ):
        body = None if value is None else _encoded(value)
        assert node.call(method, target, body).status == status, target
    assert node.call("PATCH", f"/v1/jobs/{job}", _encoded({}), {"if_match": '"9"'}).status == 412
    assert actions(node) == before


def test_each_job_of_a_batch_is_a_line_and_those_refused_are_none(node: NodeClient) -> None:
    jobs = [{**JOB, "name": f"n{n}"} for n in range(499)]
    answer = node.post("/v1/jobs/batch", {"jobs": [*jobs, {"name": "wrong"}]})
    accepted = [one["job_id"] for one in answer.json["results"] if one["status"] == 202]
    assert len(accepted) == 499
    found = entries(node)
    assert {one["job_id"] for one in found} == set(accepted)
    assert len(found) == 499
    assert len({one["request_id"] for one in found}) == 1
    (rows,) = node.store._db.execute("SELECT count(*) FROM audit").fetchone()
    assert rows <= 499 // MAX_JOBS_PER_WRITE + 1  # a row for all that one transaction holds
    (one,) = entries(node, f"&job_id={accepted[7]}")
    assert one["after"]["name"] == "n7"


def submitted(node: NodeClient) -> None:
    node.node.jobs.submit("local", "ada", [Submission(JOB)], ADA)


def test_a_change_that_is_undone_leaves_no_line(node: NodeClient) -> None:
    class Died(Exception):
        pass

    def dies() -> None:
        with node.store.transaction():
            submitted(node)
            assert len(noted(node.store, node.clock())) == 1
            raise Died

    with pytest.raises(Died):
        dies()
    assert noted(node.store, node.clock()) == []
    assert node.get("/v1/jobs").json["jobs"] == []


@pytest.mark.parametrize("at", ["INSERT INTO heads", "INSERT INTO audit", "COMMIT"])
def test_a_write_that_fails_takes_the_change_and_its_line_with_it(
    node: NodeClient, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    unit = node.store.transaction()
    monkeypatch.setattr(unit, "db", Failing(unit.db, at))
    with pytest.raises(Unavailable):
        node.node.perform([lambda: submitted(node)])
    monkeypatch.undo()
    assert noted(node.store, node.clock()) == []
    assert node.get("/v1/jobs").json["jobs"] == []
    node.node.perform([lambda: submitted(node)])
    assert len(noted(node.store, node.clock())) == 1
    assert len(node.get("/v1/jobs").json["jobs"]) == 1


class Failing:
    """A connection on which one statement fails, once written to."""

    def __init__(self, db: Any, at: str) -> None:
        self._db = db
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, statement: str, *rest: Any) -> Any:
        return self._tried(self._db.execute, statement, *rest)

    def executemany(self, statement: str, *rest: Any) -> Any:
        return self._tried(self._db.executemany, statement, *rest)

    def _tried(self, run: Callable[..., Any], statement: str, *rest: Any) -> Any:
        if " ".join(statement.split()).startswith(self._at):
            raise sqlite3.OperationalError("planted")
        return run(statement, *rest)


def test_it_outlives_the_node_and_goes_when_runs_go(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    first = NodeClient(tmp_path)
    submitted(first)
    first.close()
    first.store.close()
    store = Store.open(tmp_path, clock)
    assert [one.note.actor for one in noted(store, NOON)] == [ADA]
    store.purge(NOON + HISTORY_RETENTION - timedelta(seconds=1), 100)
    assert len(noted(store, NOON)) == 1
    store.purge(NOON + HISTORY_RETENTION, 100)
    assert noted(store, NOON) == []
    store.close()


def test_what_a_clock_far_ahead_noted_keeps_nothing_else(tmp_path: Path) -> None:
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


def test_many_of_one_commit_stand_in_rows_of_bounded_size(node: NodeClient) -> None:
    wanted = [Submission(JOB)] * (MAX_SUBJECTS_PER_ROW + 1)
    node.node.perform([lambda: node.node.jobs.submit("local", "ada", wanted, ADA)])
    (rows,) = node.store._db.execute("SELECT count(*) FROM audit").fetchone()
    assert rows == 2
    assert len(noted(node.store, node.clock())) == MAX_SUBJECTS_PER_ROW + 1


def test_every_call_that_writes_has_an_action(node: NodeClient) -> None:
    """A new call that changes something must be noted: this list is then to grow."""
    writing = {(call.method, call.path) for call in API_CALLS if call.function == WRITE_FUNCTION}
    by_calls = [action for action in ACTIONS if action != LIMITS_CHANGE]
    assert len(writing) == len(by_calls) + 2, "PUT beside PATCH, and /jobs/batch beside /jobs"


@pytest.mark.parametrize(
    "query",
    ["action=job.delete", "job_id=x", "from=yesterday", "limit=0", "next_token=AAAA", "who=ada"],
)
def test_a_wrong_filter_is_refused_by_name(node: NodeClient, query: str) -> None:
    answer = node.get(f"/v1/audit?{query}")
    assert answer.status == 422
    assert list(answer.fields) == [query.partition("=")[0]]


def test_a_token_of_a_page_is_good_for_its_filters_alone(node: NodeClient) -> None:
    for _ in range(3):
        submit(node)
    token = node.get("/v1/audit?limit=1").json["next_token"]
    assert node.get(f"/v1/audit?limit=1&caller=ada&next_token={token}").status == 422
    assert node.get(f"/v1/audit?limit=2&next_token={token}").status == 200


def noted(store: Store, now: datetime) -> list[Any]:
    return list(store.audit.page("local", AuditFilters(), 1_000, None, now).entries)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
