"""The calls on a whole node and its store, stepped by the test on a manual clock."""

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from punctual.domain.job_state import Lane
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.tokens import Tokens
from punctual.identity import new_id
from punctual.node.files.process_groups import GroupFiles
from punctual.node.files.token_key import TokenKey
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.change_waits import ChangeWaits
from punctual.node.node import Node
from punctual.node.sqlite.store import Store
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from tests.support.builders import ManualClock
from tests.support.web_client import Answer, ApplicationClient

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
CRON = {"name": "a", "schedule_type": "CRON", "cron_expression": "*/10 * * * *"}


class NodeClient(ApplicationClient):
    """A client of a whole node with its store. Calls wait for changes after `waits` is set."""

    waits: ChangeWaits | None = None

    def __init__(self, folder: Path, peer: tuple[str, int] | None = None) -> None:
        super().__init__(peer)
        self.clock = ManualClock(NOON)
        self.store = Store.open(folder, self.clock)
        self.workers = {
            Lane.QUICK.value: Workers("quick", 1),
            Lane.LONG.value: Workers("long", 1),
        }
        self.node = Node(
            self.store,
            AttemptRunner({}),
            GroupFiles(folder / "groups"),
            self.clock,
            self.clock.monotonic,
            new_id(self.clock),
            self.log,
            self.workers,
            lambda: None,
        )
        self.key = TokenKey(folder)
        self.tokens = Tokens(
            self.store.tokens,
            self.key.read,
            self.clock,
            new_id(self.clock),
            os.urandom,
            "local",
            self.store.audit,
        )
        self.node.start()
        self.node.step()

    @cached_property
    def application(self) -> Application:
        return build_application(
            node_services(
                self.node.jobs,
                self.node.search,
                self.tokens,
                clock=self.clock,
                failures=FailureCommands(
                    self.store.failures, self.store.job_states, self.store.audit
                ),
                operations=self.node.operations,
            ),
            self.perform,
            self.log,
            change_waits=self.waits,
        )

    async def perform(self, request: Callable[[], Any]) -> Any:
        (answer,) = self.node.perform([request])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def until(self, moment: datetime) -> None:
        """Step at each time that the node asks for."""
        for _ in range(1_000):
            at = self.node.next_step_steady()
            if at > self.clock.monotonic() + (moment - self.clock.now).total_seconds():
                break
            self.clock.advance_to_steady(at)
            self.node.step()
        self.clock.set(moment)
        self.node.step()

    def close(self) -> None:
        for workers in self.workers.values():
            workers.close(10)
        self.store.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[NodeClient]:
    client = NodeClient(tmp_path)
    try:
        yield client
    finally:
        client.close()


def submitted(client: NodeClient, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
    # Lists are sorted by the millisecond of creation.
    client.clock.set(client.clock.now + timedelta(milliseconds=1))
    answer = client.post("/v1/jobs", body, **headers)
    assert answer.status == 202, answer.body
    return cast(dict[str, Any], answer.json)


def pages(client: NodeClient, path: str, name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        answer = client.get(f"{path}{token}")
        items += answer.json[name]
        if answer.json["next_token"] is None:
            return items
        token = f"&next_token={answer.json['next_token']}"


def test_finished_job_has_output_and_history(client: NodeClient) -> None:
    job = submitted(client, {"name": "now", "schedule_type": "IMMEDIATE", "payload": {"x": 1}})
    assert job["latest_run"]["status"] == "QUEUED"
    client.node.step()
    path = f"/v1/jobs/{job['job_id']}"
    shown = client.get(path).json
    assert (shown["status"], shown["latest_run"]["status"]) == ("COMPLETED", "SUCCESS")
    assert shown["next_run_time"] is None
    (run,) = client.get(f"{path}/runs").json["runs"]
    assert run["lateness_ms"] == 0
    details = client.get(f"{path}/runs/{run['run_id']}").json
    assert [attempt["status"] for attempt in details["attempts"]] == ["SUCCESS"]
    output = client.get(run["output_url"])
    assert (output.status, len(output.body) > 0) == (200, True)
    assert client.get("/v1/runs?status=SUCCESS").json["runs"] == [run]
    assert client.get(f"{path}/explain?at={run['scheduled_time']}").json["outcome"] == "SUCCESS"
    assert client.get(f"{path}/status").json["latest_run"]["run_id"] == run["run_id"]


def test_previewed_times_equal_the_fired_times(client: NodeClient) -> None:
    schedule = {"schedule_type": "CRON", "cron_expression": "*/10 * * * *"}
    times = client.post("/v1/schedules/preview", {**schedule, "count": 3}).json["times"]
    job = submitted(client, CRON)
    upcoming = client.get("/v1/schedules/upcoming?to=2026-11-18T12:30:01Z").json["times"]
    assert [time["utc"] for time in upcoming] == [time["utc"] for time in times]
    client.until(NOON + timedelta(minutes=31))
    runs = client.get(f"/v1/jobs/{job['job_id']}/runs").json["runs"]
    assert [run["scheduled_time"] for run in reversed(runs)] == [time["utc"] for time in times]


def test_run_fired_ahead_is_the_next_run_until_it_begins(client: NodeClient) -> None:
    at = "2026-11-18T12:00:30.000Z"
    job = submitted(client, {"name": "a", "schedule_type": "FUTURE", "schedule_time": at})
    assert job["next_run_time"] == at
    client.until(NOON + timedelta(seconds=29))
    assert client.get(f"/v1/jobs/{job['job_id']}").json["next_run_time"] == at
    client.until(NOON + timedelta(seconds=31))
    shown = client.get(f"/v1/jobs/{job['job_id']}").json
    assert (shown["status"], shown["next_run_time"]) == ("COMPLETED", None)


def test_repeated_key_returns_the_same_job_and_refuses_another_body(client: NodeClient) -> None:
    first = submitted(client, CRON, idempotency_key="k")
    assert submitted(client, CRON, idempotency_key="k")["job_id"] == first["job_id"]
    other = client.post("/v1/jobs", {**CRON, "name": "b"}, idempotency_key="k")
    assert (other.status, set(other.fields)) == (422, {"Idempotency-Key"})
    run = client.post(f"/v1/jobs/{first['job_id']}/runNow", {"payload": 1}, idempotency_key="r")
    again = client.post(f"/v1/jobs/{first['job_id']}/runNow", {"payload": 1}, idempotency_key="r")
    assert run.json["run_id"] == again.json["run_id"]
    assert len(client.get("/v1/jobs").json["jobs"]) == 1


def test_repeated_key_is_answered_after_the_time_of_its_job(client: NodeClient) -> None:
    once = {"name": "a", "schedule_type": "FUTURE", "schedule_time": "2026-11-18T12:00:10Z"}
    first = submitted(client, once, idempotency_key="k")
    batch = client.post("/v1/jobs/batch", {"jobs": [once, CRON]}, idempotency_key="b")
    client.until(NOON + timedelta(minutes=1))
    assert submitted(client, once, idempotency_key="k")["job_id"] == first["job_id"]
    again = client.post("/v1/jobs/batch", {"jobs": [once, CRON]}, idempotency_key="b")
    assert again.json == batch.json
    for body, key in ((once, "new"), ({**once, "name": "b"}, "k"), (once, None)):
        late = client.post("/v1/jobs", body, **({} if key is None else {"idempotency_key": key}))
        assert (late.status, set(late.fields)) == (422, {"schedule_time"})
    # A refused request does not use its key.
    other = {**CRON, "name": "c"}
    assert submitted(client, other, idempotency_key="new")["name"] == "c"


def test_batch_results_are_in_the_order_of_the_jobs(client: NodeClient) -> None:
    jobs = [{**CRON, "name": f"job {n}"} for n in range(20)]
    jobs[7]["cron_expression"] = "0 0 30 2 *"
    answer = client.post("/v1/jobs/batch", {"jobs": jobs}, idempotency_key="b")
    results = answer.json["results"]
    assert [result["status"] for result in results] == [202] * 7 + [422] + [202] * 12
    for number, result in enumerate(results):
        if number != 7:
            assert client.get(result["location"]).json["name"] == f"job {number}"
    again = client.post("/v1/jobs/batch", {"jobs": jobs}, idempotency_key="b").json["results"]
    assert [result.get("job_id") for result in again] == [
        result.get("job_id") for result in results
    ]


def test_pages_of_a_list_are_complete_without_duplicates(client: NodeClient) -> None:
    bodies = [{**CRON, "name": f"{n % 3} {n}", "tags": {"n": str(n % 2)}} for n in range(23)]
    ids = [submitted(client, body)["job_id"] for body in bodies]
    assert [job["job_id"] for job in pages(client, "/v1/jobs?limit=4", "jobs")] == ids[::-1]
    filtered = pages(client, "/v1/jobs?limit=2&name_prefix=1%20&tag=n:0", "jobs")
    assert [job["name"] for job in filtered] == ["1 22", "1 16", "1 10", "1 4"]
    for job_id in ids[:5]:
        for _ in range(3):
            assert client.post(f"/v1/jobs/{job_id}/runNow", {}).status == 202
    client.node.step()
    runs = pages(client, "/v1/runs?limit=4&trigger=RUN_NOW", "runs")
    assert len({run["run_id"] for run in runs}) == len(runs) == 15


def test_run_list_filters_by_scheduled_start_or_end_time(client: NodeClient) -> None:
    at = "2026-11-18T12:00:10Z"
    once = submitted(client, {"name": "a", "schedule_type": "FUTURE", "schedule_time": at})
    waiting = submitted(client, CRON)
    assert client.post(f"/v1/jobs/{waiting['job_id']}/pause", {}).status == 200
    client.until(NOON + timedelta(seconds=20))
    (run,) = client.get("/v1/runs").json["runs"]
    assert run["job_id"] == once["job_id"]
    times = {"scheduled": "scheduled_time", "started": "start_time", "ended": "end_time"}
    for by, field in times.items():
        ranges = f"from={run[field]}", f"from=2026-11-18T12:00:00Z&to={run[field]}"
        lists = [client.get(f"/v1/runs?by={by}&{range_}").json["runs"] for range_ in ranges]
        assert lists == [[run], []]
    assert set(client.get("/v1/runs?by=created").fields) == {"by"}


def test_change_takes_effect_and_checks_if_match(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, CRON)['job_id']}"
    changed = client.call("PATCH", path, b'{"max_retries":7}', {"if-match": '"1"'})
    assert (changed.status, changed.headers["etag"], changed.json["max_retries"]) == (200, '"2"', 7)
    assert changed.json["next_run_time"] == "2026-11-18T12:10:00.000Z"
    stale = client.call("PUT", path, b'{"max_retries":8}', {"if-match": '"1"'})
    assert (stale.status, stale.json["code"]) == (412, "PRECONDITION_FAILED")
    wrong = client.call("PUT", path, b'{"interval_seconds":8,"schedule_type":"CRON"}')
    assert (wrong.status, set(wrong.fields)) == (422, {"interval_seconds"})
    moved = client.call("PUT", path, b'{"schedule_type":"INTERVAL","interval_seconds":60}')
    assert (moved.json["cron_expression"], moved.json["interval_seconds"]) == (None, 60)
    assert moved.json["next_run_time"] == "2026-11-18T12:01:00.001Z"


COMMANDS = [("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")]


@pytest.mark.parametrize(("method", "call"), COMMANDS)
@pytest.mark.parametrize("stale", ['"1"', '"1", "9"', 'W/"2"'])
def test_command_with_an_old_version_changes_nothing(
    client: NodeClient, method: str, call: str, stale: str
) -> None:
    path = f"/v1/jobs/{submitted(client, CRON)['job_id']}"
    assert client.post(f"{path}/pause").headers["etag"] == '"2"'
    if call == "/pause":
        assert client.post(f"{path}/resume").headers["etag"] == '"3"'
    before = client.get(path)
    answer = client.call(method, path + call, headers={"if-match": stale})
    assert (answer.status, answer.json["code"]) == (412, "PRECONDITION_FAILED")
    assert client.get(path).json == before.json
    present = {"if-match": f'"1", {before.headers["etag"]}'}
    assert client.call(method, path + call, headers=present).status == 200
    assert client.get(path).json["version"] == before.json["version"] + 1


def test_allowed_commands_follow_the_status_of_the_job(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, CRON)['job_id']}"
    hours = count(1)

    def statuses() -> list[int]:
        hour = f"2026-11-18T{next(hours):02}"
        backfill = {"from": f"{hour}:00:00Z", "to": f"{hour}:30:00Z"}
        answers: list[Answer] = [
            client.call("PATCH", path, b'{"name":"b"}'),
            client.post(f"{path}/pause"),
            client.post(f"{path}/resume"),
            client.post(f"{path}/runNow", {}),
            client.post(f"{path}/backfill", backfill),
        ]
        return [answer.status for answer in answers]

    assert statuses() == [200, 200, 200, 202, 202]
    assert client.post(f"{path}/pause").json["status"] == "PAUSED"
    assert client.call("PATCH", path, b'{"name":"c"}').json["status"] == "PAUSED"
    assert client.call("DELETE", path).json["status"] == "CANCELLED"
    assert statuses() == [409, 409, 409, 409, 409]
    assert client.call("DELETE", path).status == 200
    hours = count(1)
    done = submitted(client, {"name": "d", "schedule_type": "IMMEDIATE"})
    client.node.step()
    path = f"/v1/jobs/{done['job_id']}"
    assert statuses() == [200, 409, 409, 202, 202]


def test_ended_run_is_retried_with_its_own_payload(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, {**CRON, 'payload': 'job'})['job_id']}"
    run = client.post(f"{path}/runNow", {"payload": {"mine": True}}).json
    assert client.post(f"{path}/runs/{run['run_id']}/retry").status == 409
    client.node.step()
    again = client.post(f"{path}/runs/{run['run_id']}/retry").json
    assert (again["trigger"], again["retried_from"]) == ("RETRY", run["run_id"])
    client.node.step()
    ended = client.get(f"{path}/runs/{again['run_id']}").json
    assert (ended["status"], ended["payload"]) == ("SUCCESS", {"mine": True})
    assert client.post(f"{path}/runs/{run['run_id']}/cancel").status == 409


def test_backfill_counts_occurrences_without_a_run(client: NodeClient) -> None:
    path = f"/v1/jobs/{submitted(client, CRON)['job_id']}"
    wanted = {"from": "2026-11-18T10:00:00Z", "to": "2026-11-18T11:00:00Z"}
    dry = client.post(f"{path}/backfill", {**wanted, "dry_run": True})
    assert (dry.status, dry.json["runs"], len(dry.json["times"])) == (200, 6, 6)
    assert client.post(f"{path}/backfill", wanted).json == {"runs": 6}
    long = client.post(f"{path}/backfill", {**wanted, "from": "2026-01-01T00:00:00Z"})
    assert (long.status, set(long.fields)) == (422, {"to"})
    assert "occurrences" in long.json["detail"]


def test_large_and_unusual_payloads_are_returned_unchanged(client: NodeClient) -> None:
    payloads: list[Any] = [
        "x" * 262_142,
        {"ключ": ["🎉", "\u2028", "\\u0000", "\ud7ff"], "": None},
        [2**64, -(2**70), 1e-300, 1.5, True],
        False,
        0,
        "",
    ]
    for number, payload in enumerate(payloads):
        job = submitted(client, {**CRON, "name": f"job {number}", "payload": payload})
        assert job["payload"] == payload
        assert client.get(f"/v1/jobs/{job['job_id']}").json["payload"] == payload
        listed = client.get("/v1/jobs?limit=1").json["jobs"][0]
        assert listed["payload"] == payload


def test_stats_and_health_count_jobs_and_runs(client: NodeClient) -> None:
    submitted(client, {"name": "now", "schedule_type": "IMMEDIATE"})
    submitted(client, CRON)
    client.node.step()
    stats = client.get("/v1/stats").json
    assert stats["jobs"] == {"COMPLETED": 1, "SCHEDULED": 1}
    assert stats["runs"] == {"SUCCESS": 1}
    assert stats["last_hour"][-1]["succeeded"] == 1
    health = client.get("/v1/health")
    assert (health.status, health.json["status"]) == (200, "ok")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_empty_change_keeps_job_and_version(client: NodeClient, method: str) -> None:
    path = f"/v1/jobs/{submitted(client, {**CRON, 'payload': {'a': 1}})['job_id']}"
    client.clock.advance(timedelta(seconds=30))
    before = client.get(path)
    answer = client.call(method, path, b"{}")
    assert (answer.status, answer.json, answer.headers["etag"]) == (200, before.json, '"1"')
    assert client.get(path).json == before.json
    assert client.call(method, path, b"{}", {"if-match": '"2"'}).status == 412
    assert client.call(method, path, b"{}", {"if-match": 'W/"1"'}).status == 412
    client.call("DELETE", path)
    assert client.call(method, path, b"{}").status == 409


def test_late_node_is_live_and_ready(client: NodeClient) -> None:
    """A probe that fails for lateness would restart the node and make it later."""
    submitted(
        client,
        {"name": "l", "schedule_type": "FUTURE", "schedule_time": f"{NOON:%Y-%m-%dT}12:00:05Z"},
    )
    client.clock.advance(timedelta(seconds=40))  # the event loop hangs
    client.until(NOON + timedelta(seconds=45))
    health = client.get("/v1/health")
    assert (health.status, health.json["status"]) == (503, "late")
    for probe in ("live", "ready"):
        answer = client.get(f"/v1/health/{probe}")
        assert (answer.status, answer.json) == (200, {"status": "ok"})
