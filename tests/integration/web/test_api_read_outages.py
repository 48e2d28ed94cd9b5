"""Reads while a store fails or hangs at one of their calls: correct or refused, and in time.

A fault never looks like a missing row, an empty list or a last page.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from punctual.aws.clients import Clients
from punctual.aws.dynamodb.keys import STATE_SORT_KEY
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed, FeedEntry
from punctual.aws.dynamodb.lists.runs import RunEntry
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.rows import Detail, JobKey
from punctual.lambdas.api_runtime import API_TIME_LIMIT_SECONDS
from punctual.lambdas.status.handler import build_handler
from punctual.web.contract import API_CALLS, READ_FUNCTION
from tests.support.aws.api_faults import KINDS, NOWHERE, Away, is_refused
from tests.support.aws.moto_adapter import _session
from tests.support.aws.stream_records import Stream, is_state_of
from tests.support.builders import NOON, a_row, a_run, an_id
from tests.support.deployed.drivers.api import Answer, Api
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.world import a_world

Json = Any
HOURLY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 3600}
LARGE = {"text": "x" * 20_000}
ENDED = an_id(7)
ANSWER_TIME_LIMIT_SECONDS = 25.0  # seconds, as docs/decisions/0017-availability.md promises
# Seconds that one try of a call takes at most, and the longest wait before the next.
TRY_SECONDS = {"dynamodb": 4.0, "sqs": 4.0, "s3": 7.0}
BACKOFF_SECONDS = 2.0


class WaitingClock:
    """A monotonic clock that only waits advance."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


class Installation:
    """An installation with jobs and runs, and the calls that read them."""

    def __init__(self, direct: Direct) -> None:
        self.steady = WaitingClock()
        self.api = Api(direct, self.steady, self.steady.wait)
        store = self.api.store
        jobs = [self._job(n) for n in range(3)]
        self.job = jobs[0]
        self.alive = str(self.api("POST", f"/jobs/{self.job}/runNow", {}).json["run_id"])
        key = JobKey("default", self.job)
        store.ports.blobs.put("outputs/default/x", b"text", "text/plain")
        store.ports.blobs.put("logs/default/x", b"logged", "text/plain")
        detail = Detail(
            output_blob="outputs/default/x",
            output_type="text/plain",
            output_size=4,
            log_blob="logs/default/x",
            log_size=6,
        )
        row = a_row(ENDED, self.job, "default", detail=detail)
        later_rows = [a_row(an_id(n), self.job, "default", run=_success(n)) for n in range(20, 26)]
        store.ports.history.put_runs([row, *later_rows])
        store.lists.append([RunEntry(each, 2) for each in (row, *later_rows)])  # as `status` does
        self.cursor = str(self.api("GET", "/changes").json["next_cursor"])
        self._add_change()
        assert store.ports.history.page(key, None, None, 10, NOON)

    def _add_change(self) -> None:
        runtime = self.api.runtimes[READ_FUNCTION]
        settings = runtime.settings
        feed = DynamoChangeFeed(
            *(runtime.dynamo, settings.lists_table, settings.feed_slots, runtime.clock)
        )
        feed.append("default", "batch", [FeedEntry("job", self.job, "", 9, runtime.clock())])

    def _job(self, number: int) -> str:
        start_time = f"2026-03-01T0{number}:00:00Z"
        body = {**HOURLY, "name": f"a{number}", "payload": LARGE, "start_time": start_time}
        return str(self.api("POST", "/jobs", body).json["job_id"])

    def reads(self) -> dict[str, tuple[str, str, Json]]:
        job, run = f"/jobs/{self.job}", f"/jobs/{self.job}/runs/{ENDED}"
        body = {"from": "2026-02-28T00:00:00Z", "to": "2026-02-28T05:00:00Z", "dry_run": True}
        gets = {
            "/jobs": "/jobs?limit=2",
            "/jobs/{job_id}": job,
            "/jobs/{job_id}/status": f"{job}/status",
            "/jobs/{job_id}/explain": f"{job}/explain?at=2026-03-02T11:00:00Z",
            "/jobs/{job_id}/versions": f"{job}/versions?limit=1",
            "/jobs/{job_id}/runs": f"{job}/runs?limit=3",
            "/jobs/{job_id}/runs/{run_id}": f"{job}/runs/{self.alive}",
            "/jobs/{job_id}/runs/{run_id}/output": f"{run}/output",
            "/jobs/{job_id}/runs/{run_id}/logs": f"{run}/logs",
            "/runs": "/runs?status=SUCCESS&from=2026-03-01T00:00:00Z&limit=2",
            "/schedules/upcoming": "/schedules/upcoming?limit=5",
            "/forecast": "/forecast?hours=2",
            "/stats": "/stats",
        }
        dry_run = ("POST", f"{job}/backfill", body)
        schedule = {"schedule_type": "CRON", "cron_expression": "0 3 * * *"}
        diff = ("POST", "/schedules/diff", {"before": self.job, "after": schedule})
        reads = {"dry run": dry_run, "/schedules/diff": diff}
        return reads | {rule: ("GET", path, None) for rule, path in gets.items()}


def _success(number: int) -> Run:
    return a_run(an_id(number), scheduled_at=NOON, status=RunStatus.SUCCESS, ended_at=NOON)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with a_world() as world:
        yield Installation(Direct(world))


@pytest.fixture(scope="module")
def away(installation: Installation) -> Away:
    return Away(installation.api.store)


def is_equal(first: Answer, second: Answer) -> bool:
    return (first.status, first.body) == (second.status, second.body)


def test_every_reading_call_has_a_trial(installation: Installation) -> None:
    read = {*installation.reads(), "/changes", "/health", "/schedules/preview", "/openapi.json"}
    read |= {"/health/live", "/health/ready"}
    tested_elsewhere = {"/whoami", "/tokens", "/tokens/{token_id}", "/audit", "/webhook-secret"}
    tested_elsewhere |= {
        "/artifacts",
        "/artifacts/{artifact_id}",
        "/failures",
        "/overview",
        "/operations",  # on AWS these two read no store
        "/operations/{operation_id}",
    }
    assert {
        call.path for call in API_CALLS if call.function == READ_FUNCTION
    } <= read | tested_elsewhere


@pytest.mark.parametrize("kind", KINDS)
def test_read_is_correct_or_refused_at_each_failed_store_call(
    installation: Installation, away: Away, kind: str
) -> None:
    changes = ("GET", f"/changes?after={installation.cursor}", None)
    for name, (method, path, body) in {**installation.reads(), "/changes": changes}.items():
        right = installation.api(method, path, body)
        assert right.status == (302 if name.endswith("/output") else 200), (name, right.body)
        refused = 0
        for first in count():
            with away.at(kind, first):
                answer = installation.api(method, path, body)
            if not away.hit:
                break
            assert is_refused(answer) or is_equal(answer, right), (name, first, answer.body)
            refused += answer.status == 503
        assert is_equal(answer, right)
        assert refused or kind == "lost", name


def test_calls_without_store_reads_are_answered_during_an_outage(
    installation: Installation, away: Away
) -> None:
    preview = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
    with away.at("silent", 0):
        assert installation.api("POST", "/schedules/preview", preview).status == 200
        health = installation.api("GET", "/health")
        live, ready = (
            installation.api("GET", "/health/live"),
            installation.api("GET", "/health/ready"),
        )
    assert (health.status, health.json["status"]) == (503, "down")
    assert (ready.status, ready.json) == (503, {"status": "down"})
    assert (live.status, live.json) == (200, {"status": "ok"})


@contextmanager
def hanging(installation: Installation, first: int) -> Iterator[list[int]]:
    """From call `first` on the stores hang. Each try and each wait takes its whole time."""
    calls = [0]

    def count_call(**_: Any) -> None:
        calls[0] += 1

    def hang(request: Any, **_: Any) -> None:
        if calls[0] <= first:
            return
        service = next((name for name in TRY_SECONDS if name in request.url), "dynamodb")
        installation.steady.wait(TRY_SECONDS[service])
        raise ReadTimeoutError(endpoint_url=NOWHERE)

    def retry(attempts: int, caught_exception: Any, **_: Any) -> float | None:
        if isinstance(caught_exception, ReadTimeoutError) and attempts < 3:
            installation.steady.wait(BACKOFF_SECONDS)
            return 0
        return None

    hooks = [("before-call", count_call), ("before-send", hang), ("needs-retry", retry)]
    store = installation.api.store.clients
    clients = (store.dynamodb, store.sqs, store.s3)
    for client in clients:
        for event, hook in hooks:
            client.meta.events.register_first(event, hook)
    try:
        yield calls
    finally:
        for client in clients:
            for event, hook in hooks:
                client.meta.events.unregister(event, hook)


def test_answer_is_in_time_while_the_stores_hang(installation: Installation) -> None:
    job = f"/jobs/{installation.job}"
    writes: dict[str, tuple[str, str, Json]] = {
        "submit": ("POST", "/jobs", {**HOURLY, "payload": LARGE}),
        "immediate": ("POST", "/jobs", {"name": "b", "schedule_type": "IMMEDIATE"}),
        "batch": (
            "POST",
            "/jobs/batch",
            {"jobs": [{**HOURLY, "name": f"b{n}", "payload": LARGE} for n in range(20)]},
        ),
        "change": ("PATCH", job, {"payload": [1, LARGE]}),
        "runNow": ("POST", f"{job}/runNow", {"payload": LARGE}),
        "pause": ("POST", f"{job}/pause", None),
        "resume": ("POST", f"{job}/resume", None),
        "cancel a run": ("POST", f"{job}/runs/{installation.alive}/cancel", None),
    }
    longest = 0.0
    for name, (method, path, body) in {**installation.reads(), **writes}.items():
        for first in count(0, 3):
            started_at = installation.steady()
            with hanging(installation, first) as calls:
                answer = installation.api(method, path, body)
            seconds = installation.steady() - started_at
            assert seconds <= ANSWER_TIME_LIMIT_SECONDS, (name, first, seconds)
            longest = max(longest, seconds)
            assert is_refused(answer) or answer.status < 303 or answer.status == 409
            if calls[0] <= first:
                break
    assert longest > API_TIME_LIMIT_SECONDS, "no call hung until its limit"


def test_timeouts_of_a_call_are_within_the_time_limit() -> None:
    clients = Clients(_session())
    for service, limit in TRY_SECONDS.items():
        config = getattr(clients, service).meta.config
        assert config.connect_timeout + config.read_timeout <= limit
    assert (
        API_TIME_LIMIT_SECONDS + max(TRY_SECONDS.values()) + BACKOFF_SECONDS
        <= ANSWER_TIME_LIMIT_SECONDS
    )


def test_row_of_a_later_version_is_refused_and_not_hidden(installation: Installation) -> None:
    """A list without the row would look complete, so it is refused. Other calls are answered."""
    api = installation.api
    other = str(api("POST", "/jobs", {**HOURLY, "name": "later"}).json["job_id"])
    assert api("POST", f"/jobs/{other}/runNow", {}).status == 202
    status = build_handler(api.runtimes[READ_FUNCTION])
    assert status.handle(Stream(api.store).catch()) == []  # the list has a row of the job
    dynamodb, table = api.store.clients.dynamodb, api.store.settings.jobs_table
    (row,) = [row for row in api.store.rows("jobs") if is_state_of(row, other)]
    if_stored = {"TableName": table, "ConditionExpression": "attribute_exists(pk)"}
    dynamodb.put_item(Item={**row, "f": {"N": "99"}}, **if_stored)
    try:
        for path in ("/jobs", f"/jobs/{other}", "/schedules/upcoming"):
            answer = api("GET", path)
            assert is_refused(answer), path
            assert "later version" in answer.json["detail"]
        assert is_refused(api("PATCH", f"/jobs/{other}", {"priority": "LOW"}))
        assert api("GET", f"/jobs/{installation.job}").status == 200
        assert api("GET", f"/jobs/{installation.job}/runs").status == 200
        assert api("GET", "/runs").status == 200, "this list reads no job states"
        assert api("GET", "/stats").status == 200
    finally:
        dynamodb.put_item(Item=row, **if_stored)
    assert api("GET", "/jobs").status == 200


def test_job_without_its_definition_is_unavailable_and_not_unknown(
    installation: Installation,
) -> None:
    api = installation.api
    lost = str(api("POST", "/jobs", {**HOURLY, "name": "lost"}).json["job_id"])
    rows = [
        row
        for row in api.store.rows("jobs")
        if lost in row["pk"]["S"] and row["sk"]["S"] != STATE_SORT_KEY
    ]
    (key,) = [{name: row[name] for name in ("pk", "sk")} for row in rows]
    api.store.clients.dynamodb.delete_item(TableName=api.store.settings.jobs_table, Key=key)
    assert is_refused(api("GET", f"/jobs/{lost}"))
    assert is_refused(api("PATCH", f"/jobs/{lost}", {"priority": "LOW"}))
    assert api("GET", f"/jobs/{installation.job}").status == 200
