"""Webhooks in the deployed functions: delivery, retries, giving up, and tenant secrets."""

import json
from base64 import b64encode
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from punctual.domain.tenants.webhooks import WEBHOOK_KEY_BYTES, format_keys
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from punctual.tasks.http.task import HttpTask
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import assert_at_rest, runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, World
from tests.support.signatures import is_signed

HOOK = "https://hooks.example/a"
EVENT = {"type": "event"}
HOUR = timedelta(hours=1)
DOWN = Outcome.failed("The server answered 503")


class Receiver:
    """The receiver of every HTTP call, with the times of the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls: list[tuple[datetime, dict[str, str], bytes]] = []
        self.answers: list[Outcome] = []

    def run(self, attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        task = attempt.task
        self.calls.append((self._world.clock(), task["headers"], task["body"].encode()))
        return self.answers.pop(0) if self.answers else Outcome("SUCCESS")

    @property
    def events(self) -> list[Any]:
        return [json.loads(body)["data"] for _, _, body in self.calls]


@pytest.fixture
def receiver(world: World, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    receiver = Receiver(world)
    monkeypatch.setattr(HttpTask, "run", lambda _, *given: receiver.run(*given))
    return receiver


def hook(*on: str, url: str = HOOK) -> list[dict[str, Any]]:
    return [{"on": list(on), "url": url}]


def lines(world: World, message: str) -> list[dict[str, Any]]:
    return [line for line in world.log_lines() if line.get("message") == message]


def submit_failing_job(api: Gateway, **fields: Any) -> str:
    """Submit a job that fails permanently, because its placeholder has no value."""
    task = {"type": "event", "detail_type": "{{payload.nothing}}"}
    return submit_job(api, schedule_type="IMMEDIATE", task=task, **fields)


def test_webhook_for_failures_is_sent_once_and_not_for_success(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    job = submit_failing_job(api, notify=hook("FAILED", "TIMED_OUT"))
    submit_job(api, schedule_type="IMMEDIATE", task=EVENT, notify=hook("FAILED"))
    world.run(20 * MINUTE)
    (run,) = runs_of(api, job)
    (told,) = receiver.events
    assert (told["run_id"], told["to"], told["from"]) == (run["run_id"], "FAILED", "RUNNING")
    _, headers, body = receiver.calls[0]
    secret = api.get("/webhook-secret").json["secret"]
    assert is_signed(secret, headers, body)
    entries = api.get("/audit?action=webhook_secret.read").json["entries"]
    assert [(entry["caller"], entry["job_id"]) for entry in entries] == [("admin", None)]
    assert headers["webhook-id"] == f"{run['run_id']}.0"
    (line,) = lines(world, "webhook_delivered")
    assert (line["job_id"], line["tries"]) == (job, 1)
    assert secret not in json.dumps(world.log_lines())
    assert world.failures == []
    assert_at_rest(world)


def test_webhook_body_equals_event_of_the_bus(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    submit_job(api, schedule_type="IMMEDIATE", task=EVENT, notify=hook("SUCCESS"))
    world.run(MINUTE)
    (told,) = receiver.events
    changes = [json.loads(entry["Detail"]) for entry in world.published() if "Change" in str(entry)]
    (change,) = [change for change in changes if change.get("run_id") == told["run_id"]]
    assert {**told, "time": ""} == {**change, "time": ""}


def test_webhook_is_retried_with_backoff_until_receiver_answers(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    submit_failing_job(api, notify=hook("FAILED"))
    receiver.answers = [DOWN] * 3
    world.run(5 * MINUTE)
    times = [at for at, _, _ in receiver.calls]
    gaps = [(later - at).total_seconds() for at, later in pairwise(times)]
    assert all(
        0.8 * delay <= gap <= delay + 1 for gap, delay in zip(gaps, (10, 20, 40), strict=True)
    )
    assert len({headers["webhook-id"] for _, headers, _ in receiver.calls}) == 1
    assert len({headers["webhook-timestamp"] for _, headers, _ in receiver.calls}) == 4
    world.run(HOUR)
    assert len(receiver.calls) == 4
    assert_at_rest(world)


def test_webhook_is_given_up_after_twenty_attempts(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    submit_failing_job(api, notify=hook("FAILED"))
    receiver.answers = [DOWN] * 1_000
    world.run(MINUTE)
    world.ticks = False  # no other event is due
    world.run(8 * HOUR)
    assert len(receiver.calls) == 20
    (line,) = lines(world, "webhook_given_up")
    assert (line["tries"], line["error"]) == (20, "The server answered 503")
    assert not world.lane("quick").messages
    assert not world.queue("quick-normal-dead.fifo").messages


def test_webhook_without_signing_key_ends_as_dead_letter(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    job = submit_failing_job(api, notify=hook("FAILED"))
    world.put_knob("webhook-key", "unset", "SecureString")
    assert api.get("/webhook-secret").status == 503
    world.lane("quick").max_receives = 3
    world.run(20 * MINUTE)
    assert receiver.calls == []
    (line,) = lines(world, "webhook_given_up")
    assert (line["job_id"], line["service"]) == (job, "dead-letters")
    assert [run["status"] for run in runs_of(api, job)] == ["FAILED"]
    assert not world.queue("quick-normal-dead.fifo").messages


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://169.254.169.254/", "http://[::1]/"])
def test_webhook_to_denied_address_is_given_up_at_once(
    world: World, api: Gateway, url: str
) -> None:
    submit_failing_job(api, notify=hook("FAILED", url=url))
    world.run(MINUTE)
    (line,) = lines(world, "webhook_given_up")
    assert line["tries"] == 1
    assert "may not be called" in line["error"]


def test_each_tenant_has_own_webhook_secret_shown_to_admins(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    tokens = {
        role: api.post("/tokens", {"name": role, "role": role, "tenant": "acme"}).json["token"]
        for role in ("admin", "editor")
    }
    theirs = Gateway(world, tokens["admin"])
    assert Gateway(world, tokens["editor"]).get("/webhook-secret").status == 403
    secret, mine = (gateway.get("/webhook-secret").json["secret"] for gateway in (theirs, api))
    assert secret != mine
    submit_failing_job(theirs, notify=hook("FAILED"))
    world.run(MINUTE)
    ((_, headers, body),) = receiver.calls
    assert is_signed(secret, headers, body)
    assert not is_signed(mine, headers, body)
    assert receiver.events[0]["tenant"] == "acme"


def test_webhook_has_both_signatures_after_rotation(
    world: World, api: Gateway, receiver: Receiver
) -> None:
    before = api.get("/webhook-secret").json["secret"]
    former = world.session.client("ssm").get_parameter(
        Name=f"/punctual/{world.stage}/webhook-key", WithDecryption=True
    )["Parameter"]["Value"]
    new = b64encode(bytes(WEBHOOK_KEY_BYTES)).decode()
    world.put_knob("webhook-key", f"{new} {former}", "SecureString")
    after = api.get("/webhook-secret").json["secret"]
    submit_failing_job(api, notify=hook("FAILED"))
    world.run(MINUTE)
    ((_, headers, body),) = receiver.calls
    assert before != after
    assert is_signed(before, headers, body)
    assert is_signed(after, headers, body)
    assert format_keys((bytes(WEBHOOK_KEY_BYTES),)) == new


@pytest.mark.parametrize("operation", ["SendMessageBatch", "BatchWriteItem"])
@pytest.mark.parametrize("answered", [False, True])
def test_executor_crash_around_finish_loses_no_webhook(
    world: World, api: Gateway, receiver: Receiver, operation: str, answered: bool
) -> None:
    struck: list[Moment] = []

    def plan(moment: Moment) -> BaseException | None:
        executing = moment.role.endswith("executor-quick")
        if struck or not executing or moment.operation != operation:
            return None
        if moment.answered is not answered:
            return None
        struck.append(moment)
        return Killed("killed")

    job = submit_failing_job(api, notify=hook("FAILED"))
    world.faults.plan = plan
    world.run(15 * MINUTE)
    assert struck
    (run,) = runs_of(api, job)
    assert {told["run_id"] for told in receiver.events} == {run["run_id"]}
    assert run["status"] == "FAILED"
