"""Twenty simultaneous calls with one key, each in its own environment, on the stores of AWS."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any
from unittest import mock

import pytest
from moto.core.botocore_stubber import BotocoreStubber

from punctual.lambdas.status.handler import build_handler
from punctual.web.contract import READ_FUNCTION
from tests.support.aws.stream_records import Stream
from tests.support.deployed.drivers.api import ADMIN, Answer, Api
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.world import a_world

CALLS = 20
DAILY = {"name": "twin", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}
KEY = {"Idempotency-Key": "one"}


@pytest.fixture
def apis() -> Iterator[list[Api]]:
    """Yield one environment of the functions for each call, as Lambda does.

    moto checks a condition and writes in two steps, AWS in one. So the calls of moto take turns.
    """
    lock, process_request = Lock(), BotocoreStubber.process_request

    def in_turn(*args: Any) -> Any:
        with lock:
            return process_request(*args)

    with a_world() as world, mock.patch.object(BotocoreStubber, "process_request", in_turn):
        direct = Direct(world)
        yield [Api(direct, first_id=1 + n * 1_000) for n in range(CALLS)]


def call_at_once(apis: list[Api], call: Callable[[Api], Answer]) -> list[Answer]:
    ready = Barrier(CALLS)

    def work(api: Api) -> Answer:
        ready.wait(10)
        return call(api)

    with apis[0].direct.world.meter.as_role("test"), ThreadPoolExecutor(CALLS) as pool:
        return list(pool.map(work, apis))


def common_value(answers: list[Answer], status: int, value_of: Callable[[Any], Any]) -> Any:
    """Return the value that all answers have in common."""
    assert {answer.status for answer in answers} == {status}, [a.body for a in answers]
    values = {value_of(answer.json) for answer in answers}
    assert len(values) == 1
    return values.pop()


def test_simultaneous_submissions_create_one_job(apis: list[Api]) -> None:
    answers = call_at_once(apis, lambda api: api("POST", "/jobs", DAILY, headers=KEY))
    job_id = common_value(answers, 202, lambda job: job["job_id"])
    assert [job["job_id"] for job in apis[0]("GET", "/jobs").json["jobs"]] == [job_id]


def test_simultaneous_submissions_of_an_immediate_job_run_once(apis: list[Api]) -> None:
    now = {"name": "now", "schedule_type": "IMMEDIATE"}
    answers = call_at_once(apis, lambda api: api("POST", "/jobs", now, headers=KEY))
    job_id = common_value(answers, 202, lambda job: job["job_id"])
    (run,) = apis[0]("GET", f"/jobs/{job_id}/runs").json["runs"]
    assert {message.run_id for message in apis[0].store.delivered()} == {run["run_id"]}


def test_simultaneous_batches_create_each_job_once(apis: list[Api]) -> None:
    body = {"jobs": [DAILY, {"name": 5}, {**DAILY, "name": "other"}]}
    answers = call_at_once(apis, lambda api: api("POST", "/jobs/batch", body, headers=KEY))
    ids = common_value(
        answers, 207, lambda batch: tuple(result.get("job_id") for result in batch["results"])
    )
    listed = {job["job_id"] for job in apis[0]("GET", "/jobs").json["jobs"]}
    assert listed == {ids[0], ids[2]}
    assert len(listed) == 2


def test_simultaneous_run_requests_and_retries_make_one_run_each(apis: list[Api]) -> None:
    job = f"/jobs/{apis[0]('POST', '/jobs', DAILY).json['job_id']}"
    body = {"payload": {"n": 1}}
    answers = call_at_once(apis, lambda api: api("POST", f"{job}/runNow", body, headers=KEY))
    run_id = common_value(answers, 202, lambda run: run["run_id"])
    assert [run["run_id"] for run in apis[0]("GET", f"{job}/runs").json["runs"]] == [run_id]
    run = f"{job}/runs/{run_id}"
    assert apis[0]("POST", f"{run}/cancel").status == 202
    retry_key = {"Idempotency-Key": "two"}
    answers = call_at_once(apis, lambda api: api("POST", f"{run}/retry", headers=retry_key))
    retry_id = common_value(answers, 202, lambda run: run["run_id"])
    runs = apis[0]("GET", f"{job}/runs").json["runs"]
    assert {run["run_id"] for run in runs} == {run_id, retry_id}


def test_idempotency_key_is_separate_for_each_tenant(apis: list[Api]) -> None:
    other = {"lambda": {**ADMIN["lambda"], "tenant": "other"}}
    job_id = apis[0]("POST", "/jobs", DAILY, headers=KEY).json["job_id"]
    answer = apis[0]("POST", "/jobs", {**DAILY, "name": "x"}, headers=KEY, authorizer=other)
    assert answer.status == 202
    assert answer.json["job_id"] != job_id
    assert apis[0]("GET", f"/jobs/{job_id}", authorizer=other).status == 404


@pytest.mark.parametrize("listed", ["/jobs", "/jobs/{job}/runs", "/runs", "/schedules/upcoming"])
def test_page_token_of_another_tenant_is_refused(apis: list[Api], listed: str) -> None:
    other = {"lambda": {**ADMIN["lambda"], "tenant": "other"}}
    api = apis[0]
    ids = [api("POST", "/jobs", {**DAILY, "name": name}).json["job_id"] for name in "abc"]
    for _ in range(3):
        assert api("POST", f"/jobs/{ids[0]}/runNow", {}).status == 202
    status = build_handler(api.runtimes[READ_FUNCTION])
    assert status.handle(Stream(api.store).catch()) == []  # lists follow the stream
    path = f"{listed.format(job=ids[0])}?limit=1"
    token = api("GET", path).json["next_token"]
    assert token
    assert api("GET", f"{path}&next_token={token}").status == 200
    refused = api("GET", f"{path}&next_token={token}", authorizer=other)
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "next_token")
