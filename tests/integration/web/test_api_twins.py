"""Twenty calls at the same moment with one key, on AWS's stores, from threads of their own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any
from unittest import mock

import pytest
from moto.core.botocore_stubber import BotocoreStubber

from tests.support.deployed.api import ADMIN, Answer, Api
from tests.support.deployed.direct import Direct
from tests.support.deployed.world import a_world

TWINS = 20
DAILY = {"name": "twin", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}
KEY = {"Idempotency-Key": "one"}


@pytest.fixture
def twins() -> Iterator[list[Api]]:
    """An environment of the functions for each call, as Lambda gives them.

    moto looks at a condition and writes in two steps, where AWS does it in one: calls take turns.
    """
    turns, answer = Lock(), BotocoreStubber.process_request

    def in_turn(*asked: Any) -> Any:
        with turns:
            return answer(*asked)

    with a_world() as world, mock.patch.object(BotocoreStubber, "process_request", in_turn):
        direct = Direct(world)
        yield [Api(direct, first_id=1 + n * 1_000) for n in range(TWINS)]


def at_once(twins: list[Api], call: Callable[[Api], Answer]) -> list[Answer]:
    ready = Barrier(TWINS)

    def work(twin: Api) -> Answer:
        ready.wait(10)
        return call(twin)

    with twins[0].direct.world.meter.as_role("test"), ThreadPoolExecutor(TWINS) as pool:
        return list(pool.map(work, twins))


def only(answers: list[Answer], status: int, of: Callable[[Any], Any]) -> Any:
    assert {answer.status for answer in answers} == {status}, [a.body for a in answers]
    found = {of(answer.json) for answer in answers}
    assert len(found) == 1
    return found.pop()


def test_one_job(twins: list[Api]) -> None:
    answers = at_once(twins, lambda api: api("POST", "/jobs", DAILY, headers=KEY))
    job_id = only(answers, 202, lambda job: job["job_id"])
    assert [job["job_id"] for job in twins[0]("GET", "/jobs").json["jobs"]] == [job_id]


def test_one_job_that_is_due_at_once_runs_once(twins: list[Api]) -> None:
    now = {"name": "now", "schedule_type": "IMMEDIATE"}
    answers = at_once(twins, lambda api: api("POST", "/jobs", now, headers=KEY))
    job_id = only(answers, 202, lambda job: job["job_id"])
    (run,) = twins[0]("GET", f"/jobs/{job_id}/runs").json["runs"]
    assert {one.run_id for one in twins[0].store.delivered()} == {run["run_id"]}


def test_each_job_of_a_batch_once(twins: list[Api]) -> None:
    body = {"jobs": [DAILY, {"name": 5}, DAILY]}
    answers = at_once(twins, lambda api: api("POST", "/jobs/batch", body, headers=KEY))
    ids = only(answers, 207, lambda v: tuple(one.get("job_id") for one in v["results"]))
    listed = {job["job_id"] for job in twins[0]("GET", "/jobs").json["jobs"]}
    assert listed == {ids[0], ids[2]}
    assert len(listed) == 2


def test_one_run_and_one_retry(twins: list[Api]) -> None:
    job = f"/jobs/{twins[0]('POST', '/jobs', DAILY).json['job_id']}"
    body = {"payload": {"n": 1}}
    answers = at_once(twins, lambda api: api("POST", f"{job}/runNow", body, headers=KEY))
    run_id = only(answers, 202, lambda run: run["run_id"])
    assert [run["run_id"] for run in twins[0]("GET", f"{job}/runs").json["runs"]] == [run_id]
    run = f"{job}/runs/{run_id}"
    assert twins[0]("POST", f"{run}/cancel").status == 202
    again = {"Idempotency-Key": "two"}
    answers = at_once(twins, lambda api: api("POST", f"{run}/retry", headers=again))
    retry_id = only(answers, 202, lambda run: run["run_id"])
    found = twins[0]("GET", f"{job}/runs").json["runs"]
    assert {run["run_id"] for run in found} == {run_id, retry_id}


def test_a_key_is_one_tenants_own(twins: list[Api]) -> None:
    other = {"lambda": {**ADMIN["lambda"], "tenant": "other"}}
    one = twins[0]("POST", "/jobs", DAILY, headers=KEY).json["job_id"]
    theirs = twins[0]("POST", "/jobs", {**DAILY, "name": "x"}, headers=KEY, authorizer=other)
    assert theirs.status == 202
    assert theirs.json["job_id"] != one
    assert twins[0]("GET", f"/jobs/{one}", authorizer=other).status == 404


@pytest.mark.parametrize("listed", ["/jobs", "/jobs/{job}/runs", "/runs", "/schedules/upcoming"])
def test_a_token_of_a_list_is_one_tenants_own(twins: list[Api], listed: str) -> None:
    other = {"lambda": {**ADMIN["lambda"], "tenant": "other"}}
    api = twins[0]
    ids = [api("POST", "/jobs", DAILY).json["job_id"] for _ in range(3)]
    for _ in range(3):
        assert api("POST", f"/jobs/{ids[0]}/runNow", {}).status == 202
    path = f"{listed.format(job=ids[0])}?limit=1"
    token = api("GET", path).json["next_token"]
    assert token
    assert api("GET", f"{path}&next_token={token}").status == 200
    refused = api("GET", f"{path}&next_token={token}", authorizer=other)
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "next_token")
