"""Stores that go away at every call of every read, or hang: the right answer or none, and in time.

No error looks like something that is not there, an empty list, or a last page.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from punctual.aws.clients import Clients
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.rows import Detail, JobKey
from punctual.lambdas.api_runtime import API_TIME_LIMIT_SECONDS
from punctual.web.contract import API_CALLS, READ_FUNCTION
from tests.support.aws.api_faults import KINDS, NOWHERE, Away, is_refused
from tests.support.aws.moto_adapter import _session
from tests.support.builders import NOON, a_row, a_run, an_id
from tests.support.deployed.api import Answer, Api
from tests.support.deployed.direct import Direct
from tests.support.deployed.world import a_world

Json = Any
HOURLY = {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 3600}
LARGE = {"text": "x" * 20_000}
ENDED = an_id(7)
WHOLE = 25.0  # seconds in which an answer comes, as docs/decisions/0017-availability.md says
# A try of a call: to connect and to be answered; and the longest wait before another.
TRY = {"dynamodb": 4.0, "sqs": 4.0, "s3": 7.0}
BACKOFF = 2.0


class Told:
    """A steady clock that only waiting moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


class Place:
    """An installation with some jobs and runs, and the calls that read them."""

    def __init__(self, direct: Direct) -> None:
        self.steady = Told()
        self.api = Api(direct, self.steady, self.steady.wait)
        store = self.api.store
        jobs = [self._job(n) for n in range(3)]
        self.job = jobs[0]
        self.alive = str(self.api("POST", f"/jobs/{self.job}/runNow", {}).json["run_id"])
        key = JobKey("default", self.job)
        store.ports.blobs.put("outputs/default/x", b"said", "text/plain")
        store.ports.blobs.put("logs/default/x", b"logged", "text/plain")
        left = Detail(
            output_blob="outputs/default/x",
            output_type="text/plain",
            output_size=4,
            log_blob="logs/default/x",
            log_size=6,
        )
        row = a_row(ENDED, self.job, "default", detail=left)
        more = [a_row(an_id(n), self.job, "default", run=_success(n)) for n in range(20, 26)]
        store.ports.history.put_runs([row, *more])
        store.lists.append("default", [row, *more])  # as the status function does
        assert store.ports.history.page(key, None, None, 10, NOON)

    def _job(self, number: int) -> str:
        body = {**HOURLY, "payload": LARGE, "start_time": f"2026-03-01T0{number}:00:00Z"}
        return str(self.api("POST", "/jobs", body).json["job_id"])

    def reads(self) -> dict[str, tuple[str, str, Json]]:
        job, run = f"/jobs/{self.job}", f"/jobs/{self.job}/runs/{ENDED}"
        reach = {"from": "2026-02-28T00:00:00Z", "to": "2026-02-28T05:00:00Z", "dry_run": True}
        gets = {
            "/jobs": "/jobs?limit=2",
            "/jobs/{job_id}": job,
            "/jobs/{job_id}/status": f"{job}/status",
            "/jobs/{job_id}/explain": f"{job}/explain?at=2026-03-02T11:00:00Z",
            "/jobs/{job_id}/runs": f"{job}/runs?limit=3",
            "/jobs/{job_id}/runs/{run_id}": f"{job}/runs/{self.alive}",
            "/jobs/{job_id}/runs/{run_id}/output": f"{run}/output",
            "/jobs/{job_id}/runs/{run_id}/logs": f"{run}/logs",
            "/runs": "/runs?status=SUCCESS&from=2026-03-01T00:00:00Z&limit=2",
            "/schedules/upcoming": "/schedules/upcoming?limit=5",
            "/stats": "/stats",
        }
        dry = ("POST", f"{job}/backfill", reach)
        return {"dry run": dry} | {rule: ("GET", path, None) for rule, path in gets.items()}


def _success(number: int) -> Run:
    return a_run(an_id(number), scheduled_at=NOON, status=RunStatus.SUCCESS, ended_at=NOON)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with a_world() as world:
        yield Place(Direct(world))


@pytest.fixture(scope="module")
def away(place: Place) -> Away:
    return Away(place.api.store)


def same(one: Answer, other: Answer) -> bool:
    return (one.status, one.body) == (other.status, other.body)


def test_every_call_that_reads_has_its_trial(place: Place) -> None:
    known = {*place.reads(), "/health", "/schedules/preview", "/openapi.json"}
    known |= {"/health/live", "/health/ready"}
    elsewhere = {"/whoami", "/tokens", "/tokens/{token_id}", "/audit", "/webhook-secret"}
    assert {call.path for call in API_CALLS if call.function == READ_FUNCTION} <= known | elsewhere


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_is_right_or_refused_wherever_the_stores_go_away(
    place: Place, away: Away, kind: str
) -> None:
    for name, (method, path, body) in place.reads().items():
        right = place.api(method, path, body)
        assert right.status == (302 if name.endswith("/output") else 200), (name, right.body)
        refused = 0
        for first in count():
            with away.at(kind, first):
                answer = place.api(method, path, body)
            if not away.hit:
                break
            assert is_refused(answer) or same(answer, right), (name, first, answer.body)
            refused += answer.status == 503
        assert same(answer, right)
        assert refused or kind == "lost", name


def test_what_asks_no_store_is_answered_without_one(place: Place, away: Away) -> None:
    asked = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}
    with away.at("silent", 0):
        assert place.api("POST", "/schedules/preview", asked).status == 200
        health = place.api("GET", "/health")
        live, ready = place.api("GET", "/health/live"), place.api("GET", "/health/ready")
    assert (health.status, health.json["status"]) == (503, "down")
    assert (ready.status, ready.json) == (503, {"status": "down"})
    assert (live.status, live.json) == (200, {"status": "ok"})


@contextmanager
def hanging(place: Place, first: int) -> Iterator[list[int]]:
    """From a call on nothing is answered: each try takes all the time it may, and so do waits."""
    seen = [0]

    def asked(**_: Any) -> None:
        seen[0] += 1

    def try_it(request: Any, **_: Any) -> None:
        if seen[0] <= first:
            return
        service = next((one for one in TRY if one in request.url), "dynamodb")
        place.steady.wait(TRY[service])
        raise ReadTimeoutError(endpoint_url=NOWHERE)

    def again(attempts: int, caught_exception: Any, **_: Any) -> float | None:
        if isinstance(caught_exception, ReadTimeoutError) and attempts < 3:
            place.steady.wait(BACKOFF)
            return 0
        return None

    hooks = [("before-call", asked), ("before-send", try_it), ("needs-retry", again)]
    store = place.api.store.clients
    clients = (store.dynamodb, store.sqs, store.s3)
    for client in clients:
        for event, hook in hooks:
            client.meta.events.register_first(event, hook)
    try:
        yield seen
    finally:
        for client in clients:
            for event, hook in hooks:
                client.meta.events.unregister(event, hook)


def test_an_answer_comes_in_time_though_the_stores_hang(place: Place) -> None:
    job = f"/jobs/{place.job}"
    writes: dict[str, tuple[str, str, Json]] = {
        "submit": ("POST", "/jobs", {**HOURLY, "payload": LARGE}),
        "now": ("POST", "/jobs", {"name": "b", "schedule_type": "IMMEDIATE"}),
        "batch": ("POST", "/jobs/batch", {"jobs": [{**HOURLY, "payload": LARGE}] * 20}),
        "change": ("PATCH", job, {"payload": [1, LARGE]}),
        "order": ("POST", f"{job}/runNow", {"payload": LARGE}),
        "pause": ("POST", f"{job}/pause", None),
        "resume": ("POST", f"{job}/resume", None),
        "cancel a run": ("POST", f"{job}/runs/{place.alive}/cancel", None),
    }
    longest = 0.0
    for name, (method, path, body) in {**place.reads(), **writes}.items():
        for first in count(0, 3):
            begun = place.steady()
            with hanging(place, first) as seen:
                answer = place.api(method, path, body)
            took = place.steady() - begun
            assert took <= WHOLE, (name, first, took)
            longest = max(longest, took)
            assert is_refused(answer) or answer.status < 303 or answer.status == 409
            if seen[0] <= first:
                break
    assert longest > API_TIME_LIMIT_SECONDS, "nothing hung until its end"


def test_a_try_takes_no_longer_than_is_reckoned_with() -> None:
    clients = Clients(_session())
    for service, most in TRY.items():
        config = getattr(clients, service).meta.config
        assert config.connect_timeout + config.read_timeout <= most
    assert API_TIME_LIMIT_SECONDS + max(TRY.values()) + BACKOFF <= WHOLE


def test_a_row_of_a_later_version_hides_nothing(place: Place) -> None:
    """A list without it would look whole: it is refused; all else is answered."""
    api = place.api
    other = str(api("POST", "/jobs", {**HOURLY, "name": "later"}).json["job_id"])
    assert api("POST", f"/jobs/{other}/runNow", {}).status == 202
    dynamodb, table = api.store.clients.dynamodb, api.store.settings.jobs_table
    (row,) = [one for one in api.store.rows("jobs") if one["sk"]["S"] == other]
    there = {"TableName": table, "ConditionExpression": "attribute_exists(pk)"}
    dynamodb.put_item(Item={**row, "f": {"N": "99"}}, **there)
    try:
        for path in ("/jobs", f"/jobs/{other}", "/runs", "/schedules/upcoming"):
            answer = api("GET", path)
            assert is_refused(answer), path
            assert "later version" in answer.json["detail"]
        assert is_refused(api("PATCH", f"/jobs/{other}", {"priority": "LOW"}))
        assert api("GET", f"/jobs/{place.job}").status == 200
        assert api("GET", f"/jobs/{place.job}/runs").status == 200
        assert api("GET", "/stats").status == 200
    finally:
        dynamodb.put_item(Item=row, **there)
    assert api("GET", "/jobs").status == 200


def test_a_job_whose_definition_is_gone_is_not_said_to_be_unknown(place: Place) -> None:
    api = place.api
    lost = str(api("POST", "/jobs", {**HOURLY, "name": "lost"}).json["job_id"])
    rows = [row for row in api.store.rows("jobs") if f"{lost}#body" in row["sk"]["S"]]
    (key,) = [{name: row[name] for name in ("pk", "sk")} for row in rows]
    api.store.clients.dynamodb.delete_item(TableName=api.store.settings.jobs_table, Key=key)
    assert is_refused(api("GET", f"/jobs/{lost}"))
    assert is_refused(api("PATCH", f"/jobs/{lost}", {"priority": "LOW"}))
    assert api("GET", f"/jobs/{place.job}").status == 200
