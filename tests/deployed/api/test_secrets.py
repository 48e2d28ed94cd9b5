"""Secrets in the deployed functions: set by the API, used by runs, throttled, and shown nowhere."""

import json
from datetime import timedelta
from typing import Any

import pytest

from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from punctual.tasks.http.task import HttpTask
from tests.support.deployed.faults import Moment, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import assert_at_rest, runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, World

VALUE = "correct horse battery"
CALL = {"type": "http", "url": "https://bank.example/", "headers": {"X": "{{secret:bank}}"}}
THROTTLED = Refusal("ThrottlingException")


@pytest.fixture
def received(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer every HTTP call with the value that it sent, and collect the values."""
    values: list[str] = []

    def answer(_: HttpTask, attempt: Attempt, __: StopRequest, recorder: Recorder) -> Outcome:
        values.append(attempt.task["headers"]["X"])
        return Outcome("SUCCESS", output=f"you sent {values[-1]}".encode())

    monkeypatch.setattr(HttpTask, "run", answer)
    return values


def submit(api: Gateway, **fields: Any) -> str:
    return submit_job(api, schedule_type="IMMEDIATE", task=CALL, **fields)


def put(api: Gateway, value: str = VALUE, name: str = "bank") -> None:
    answer = api.call("PUT", f"/secrets/{name}", {"value": value})
    assert (answer.status, answer.body) == (204, "")


def all_shown(world: World) -> str:
    """Return all logs, rows and objects of the deployment as one text."""
    rows = [
        world.bare.scan(TableName=name)["Items"] for name in world.bare.list_tables()["TableNames"]
    ]
    return json.dumps([world.log_lines(), rows, world.published()], default=str)


def test_run_gets_the_secret_of_the_api_and_nothing_shows_it(
    world: World, api: Gateway, received: list[str]
) -> None:
    put(api)
    job = submit(api, max_retries=0)
    world.run(2 * MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], received) == ("SUCCESS", [VALUE])
    assert api.output(job, run["run_id"]) == b"you sent [secret]"
    assert VALUE not in all_shown(world)
    (listed,) = api.get("/secrets").json["secrets"]
    assert (listed["name"], listed["updated_by"]) == ("bank", "admin")
    noted = api.get("/audit?action=secret.set").json["entries"]
    assert [(entry["caller"], entry["after"]) for entry in noted] == [("admin", {"secret": "bank"})]
    assert world.failures == []
    assert_at_rest(world)


def test_changed_secret_is_used_within_a_minute_and_a_deleted_one_fails_the_run(
    world: World, api: Gateway, received: list[str]
) -> None:
    put(api)
    submit(api)
    world.run(2 * MINUTE)
    put(api, "changed")
    world.run(MINUTE)
    submit(api)
    world.run(2 * MINUTE)
    assert received == [VALUE, "changed"]
    assert api.call("DELETE", "/secrets/bank").status == 204
    assert api.call("DELETE", "/secrets/bank").status == 404
    world.run(MINUTE)
    job = submit(api, max_retries=3)
    world.run(5 * MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], run["attempt_number"]) == ("FAILED", 1)
    assert run["error_message"] == "There is no secret named 'bank'"


def test_run_returns_to_its_queue_while_reads_of_secrets_are_throttled(
    world: World, api: Gateway, received: list[str]
) -> None:
    put(api)
    ends_at = world.clock() + timedelta(seconds=90)

    def throttle(moment: Moment) -> Refusal | None:
        is_read = moment.operation == "GetParameter" and "executor" in moment.role
        return THROTTLED if is_read and not moment.answered and world.clock() < ends_at else None

    world.faults.plan = throttle
    job = submit(api, max_retries=0)
    world.run(MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], received) == ("WAITING", [])
    world.run(10 * MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], run["attempt_number"], received) == ("SUCCESS", 1, [VALUE])
    assert world.failures == []


def test_throttled_write_is_unavailable_and_can_be_repeated(world: World, api: Gateway) -> None:
    world.faults.plan = lambda moment: (
        THROTTLED if moment.operation == "PutParameter" and not moment.answered else None
    )
    answer = api.call("PUT", "/secrets/bank", {"value": VALUE})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    world.faults.plan = None
    put(api)
    assert VALUE not in all_shown(world)


def test_secret_of_another_tenant_is_unknown(world: World, api: Gateway) -> None:
    put(api)
    made = api.post("/tokens", {"name": "ci", "role": "editor", "tenant": "acme"}).json
    theirs = Gateway(world, made["token"])
    assert theirs.get("/secrets").json == {"secrets": []}
    assert theirs.call("DELETE", "/secrets/bank").status == 404
    put(theirs, "theirs")
    assert api.call("DELETE", "/secrets/bank").status == 204
    assert [secret["name"] for secret in theirs.get("/secrets").json["secrets"]] == ["bank"]


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_lower_role_than_editor_reaches_no_secret(world: World, api: Gateway, role: str) -> None:
    put(api)
    made = api.post("/tokens", {"name": "ci", "role": role}).json
    weak = Gateway(world, made["token"])
    assert weak.get("/secrets").status == 403
    assert weak.call("PUT", "/secrets/bank", {"value": "x"}).status == 403
    assert weak.call("DELETE", "/secrets/bank").status == 403
    assert weak.get("/audit").status == 403
