"""Webhooks on AWS: queued before the history row, sent beside runs, and given up at last."""

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from punctual.aws.sqs.notifications import to_body
from punctual.domain.run import RunStatus
from punctual.domain.tenants.webhooks import (
    MAX_WEBHOOK_ATTEMPTS,
    format_keys,
    format_secret,
    tenant_secret,
)
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.lambdas.telemetry import Metric
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.integration.contract.test_contract_notifications import a_notification
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors, Record, executors
from tests.support.scripts.manual_task_runner import ScriptedTask
from tests.support.signatures import is_signed
from tests.support.simulation.port_faults import Crash, Fault, FaultKind, Plan

KEY, OLD = bytes(range(32)), bytes(32)
HOOK = "https://hooks.example/a"
FAILS = {"error": "no luck"}
DOWN = Outcome.failed("The server answered 503")
REFUSED = Outcome.failed("it may not be called", retryable=False)


class WebhookReceiver(ScriptedTask):
    """Runs scripted tasks, and answers webhooks with `answers` or with success."""

    def __init__(self, world: Executors) -> None:
        super().__init__(world.clock)
        self.world = world
        self.calls: list[tuple[datetime, Attempt]] = []
        self.answers: list[Outcome] = []

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        if "webhook-id" not in (attempt.task.get("headers") or {}):
            return super().run(attempt, stop, recorder)
        self.calls.append((self.world.clock(), attempt))
        return self.answers.pop(0) if self.answers else Outcome("SUCCESS")


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as world:
        world.task = WebhookReceiver(world)
        put_keys(world, KEY)
        yield world


def put_keys(world: Executors, *keys: bytes) -> None:
    world.aws.clients.ssm.put_parameter(
        Name=f"{world.aws.settings.knobs}webhook-key",
        Value=format_keys(keys) or "unset",
        Type="SecureString",
        Overwrite=True,
    )


def received(world: Executors) -> list[Attempt]:
    assert isinstance(world.task, WebhookReceiver)
    return [attempt for _, attempt in world.task.calls]


def answers(world: Executors, *outcomes: Outcome) -> None:
    assert isinstance(world.task, WebhookReceiver)
    world.task.answers += outcomes


def submit(world: Executors, *on: str, **fields: Any) -> JobKey:
    notify = [{"on": [status], "url": f"{HOOK}/{status.lower()}"} for status in on]
    return world.submit(notify=notify, max_retries=0, **fields)


def submit_and_run(world: Executors, *on: str, payload: Any = FAILS, **fields: Any) -> JobKey:
    key = submit(world, *on, payload=payload, **fields)
    assert world.invoke(world.records()) == []
    return key


def redelivered(record: Record, receives: int) -> Record:
    return {
        **record,
        "attributes": {**record["attributes"], "ApproximateReceiveCount": str(receives)},
    }


def lines(world: Executors, event: str) -> list[dict[str, Any]]:
    return [fields for name, fields in world.telemetry.infos if name == event]


def test_webhook_of_matching_status_is_sent_once(world: Executors) -> None:
    key = submit_and_run(world, "SUCCESS", "FAILED", "TIMED_OUT")
    run = world.run(key).run
    (record,) = world.records()
    assert world.invoke([record]) == []
    (attempt,) = received(world)
    assert attempt.task["url"] == f"{HOOK}/failed"
    assert attempt.timeout == timedelta(seconds=10)
    assert attempt.task.get("follow_redirects") is None
    told = json.loads(attempt.task["body"])
    assert (told["type"], told["time"]) == ("Run State Change", told["data"]["end_time"])
    assert (told["data"]["run_id"], told["data"]["to"]) == (run.run_id, "FAILED")
    assert (told["data"]["from"], told["data"]["tenant"]) == ("RUNNING", "acme")
    assert "no luck" not in attempt.task["body"]
    assert world.records() == []
    fields = {"job_id": key.job_id, "run_id": run.run_id, "tenant": "acme", "tries": 1}
    assert lines(world, "webhook_delivered") == [fields]


def test_webhook_is_signed_for_its_tenant_with_each_key(world: Executors) -> None:
    put_keys(world, KEY, OLD)
    submit_and_run(world, "FAILED")
    world.invoke(world.records())
    (attempt,) = received(world)
    headers, body = attempt.task["headers"], attempt.task["body"].encode()
    for key in (KEY, OLD):
        assert is_signed(format_secret(tenant_secret(key, "acme")), headers, body)
        assert not is_signed(format_secret(tenant_secret(key, "umbrella")), headers, body)
    assert len(b64decode(headers["webhook-signature"].split()[0].removeprefix("v1,"))) == 32


def test_job_without_webhooks_has_no_notify_attribute(
    world: Executors,
) -> None:
    submit_and_run(world)
    assert world.records() == []
    (row,) = [row for row in world.aws.rows("jobs") if "state" in row]
    assert "notify" not in row


def test_job_state_names_webhook_statuses_by_letters(world: Executors) -> None:
    submit(world, "FAILED", "SUCCESS")
    (row,) = [row for row in world.aws.rows("jobs") if "state" in row]
    assert row["notify"] == {"S": "F S"}


def test_failed_attempt_with_retry_sends_no_webhook(world: Executors) -> None:
    notify = [{"on": ["FAILED"], "url": HOOK}]
    world.submit(payload=FAILS, notify=notify, max_retries=1)
    world.invoke(world.records())
    assert world.records() == []
    world.clock.set(after(60))
    world.evaluate_due_timers()
    world.invoke(world.records())
    (record,) = world.records()
    assert '"st":"FAILED"' in record["body"]


def test_failing_webhook_backs_off_and_is_given_up(world: Executors) -> None:
    key = submit_and_run(world, "FAILED")
    (record,) = world.records()
    answers(world, *[DOWN] * MAX_WEBHOOK_ATTEMPTS)
    delays = []
    for receives in range(1, MAX_WEBHOOK_ATTEMPTS):
        world.hidden.clear()
        assert world.invoke([redelivered(record, receives)]) == [record["messageId"]]
        delays.append(world.hidden[-1][1])
    assert delays[:4] == sorted(delays[:4])
    assert delays[0] in range(8, 12)
    assert delays[-1] in range(1_440, 1_801)
    assert 5 * 3_600 < sum(delays) < 7 * 3_600
    assert lines(world, "webhook_given_up") == []
    assert world.invoke([redelivered(record, MAX_WEBHOOK_ATTEMPTS)]) == []
    (fields,) = lines(world, "webhook_given_up")
    assert (fields["job_id"], fields["tries"]) == (key.job_id, MAX_WEBHOOK_ATTEMPTS)
    assert fields["error"] == "The server answered 503"
    assert HOOK not in json.dumps(fields), "an address may contain a secret"
    assert world.telemetry.count(Metric.WEBHOOKS_GIVEN_UP) == 1
    ids = {attempt.task["headers"]["webhook-id"] for attempt in received(world)}
    bodies = {attempt.task["body"] for attempt in received(world)}
    assert (len(ids), len(bodies)) == (1, 1), "each attempt sends the same id and body"


def test_webhook_with_permanent_failure_is_given_up_at_once(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    answers(world, REFUSED)
    assert world.invoke(world.records()) == []
    assert lines(world, "webhook_given_up")[0]["error"] == "it may not be called"


def test_slow_receiver_delays_no_run_of_the_batch(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    key = world.submit(payload={"lasts": 0.1})
    records = world.records()
    world.task_runner.beside = [9.5]
    assert world.invoke(records) == []
    assert len(received(world)) == 1
    assert (world.clock() - NOON).total_seconds() >= 9.5
    ended_at = world.run(key).run.ended_at
    assert ended_at is not None
    assert ended_at < after(1)


def test_webhook_without_answer_before_invocation_end_is_retried(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    (record,) = world.records()
    world.task_runner.beside = [1_000]
    assert world.invoke([record], seconds_left=30) == [record["messageId"]]
    assert world.invoke([record], seconds_left=5) == [record["messageId"]], (
        "the invocation has no time left"
    )
    assert received(world) == []


def test_webhook_is_retried_while_store_is_unavailable(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    (record,) = world.records()
    runtime = world.faulty_runtime(Plan((Fault(1, FaultKind.BEFORE),)))
    assert world.invoke([record], runtime) == [record["messageId"]]
    assert world.invoke([redelivered(record, 2)]) == []
    assert len(received(world)) == 1


def test_webhook_waits_until_signing_key_exists(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    put_keys(world)
    (record,) = world.records()
    assert world.invoke([record]) == [record["messageId"]]
    put_keys(world, KEY)
    assert world.invoke([redelivered(record, 2)], world.new_runtime()) == []
    assert len(received(world)) == 1


@pytest.mark.parametrize("notify", [[], [{"on": ["SUCCESS"], "url": HOOK}]])
def test_webhook_removed_from_definition_is_not_sent(world: Executors, notify: Any) -> None:
    key = submit(world, "FAILED", payload=FAILS)
    world.invoke(world.records())
    world.jobs.change(*key, lambda old: {**old, "notify": notify})
    assert world.invoke([record for record in world.records() if '"n":1' in record["body"]]) == []
    assert received(world) == []
    assert len(lines(world, "webhook_not_wanted")) == 1


def test_changed_webhook_address_is_used(world: Executors) -> None:
    key = submit_and_run(world, "FAILED")
    url = "https://elsewhere.example/"
    world.jobs.change(*key, lambda old: {**old, "notify": [{"on": ["FAILED"], "url": url}]})
    world.invoke(world.records())
    assert [attempt.task["url"] for attempt in received(world)] == [url]


def test_webhook_is_queued_when_dispatch_is_on_again(world: Executors) -> None:
    key = submit(world, "FAILED", payload=FAILS)
    records = world.records()
    world.runtime.dispatch_switch.set(False)
    failed = world.invoke(records)
    assert failed == [records[0]["messageId"]], "the message of the run stays"
    assert world.records() == []
    run = world.run(key).run
    place = RunKey(*key, run.run_id)
    assert world.runtime.ports.history.recorded_keys([place]) == frozenset(), (
        "the history row is not written yet"
    )
    world.runtime.dispatch_switch.set(True)
    world.clock.set(after(120))
    assert world.invoke([redelivered(records[0], 2)]) == []
    (record,) = world.records()
    assert world.runtime.ports.history.recorded_keys([place]) == {place}
    assert world.invoke([record]) == []
    assert len(received(world)) == 1


@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
def test_webhook_survives_executor_crash_at_any_call(
    world: Executors, call: int, kind: FaultKind
) -> None:
    key = submit(world, "FAILED", payload=FAILS)
    (record,) = world.records()
    told: list[Record] = []
    try:
        world.invoke([record], world.faulty_runtime(Plan((Fault(call, kind, crash=True),))))
    except Crash:
        for minutes in range(1, 12):
            world.clock.set(after(60 * minutes))
            world.evaluate_due_timers()
            records = world.records()
            told += [message for message in records if '"n":1' in message["body"]]
            world.invoke(
                [redelivered(record, 2), *(message for message in records if message not in told)]
            )
    told += world.records()
    run = world.run(key).run
    assert run.status is RunStatus.FAILED
    assert {json.loads(event["body"])["r"] for event in told} == {run.run_id}, (
        "the webhook is queued"
    )


def test_dead_lettered_notification_ends_no_run(world: Executors) -> None:
    key = submit_and_run(world, "FAILED", payload={})
    dead = world.world.queue("quick-normal-dead.fifo")
    run = world.run(key).run
    body = to_body(a_notification(run.run_id)._replace(job_id=key.job_id))
    fifo = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    world.world.sqs.send(dead, {"MessageBody": body, **fifo})
    world.handle_dead_letters(240, dead)
    (fields,) = lines(world, "webhook_given_up")
    assert (fields["job_id"], fields["run_id"]) == (key.job_id, run.run_id)
    assert world.telemetry.count(Metric.DEAD_LETTERS) == 1
    assert world.status(key) is RunStatus.SUCCESS
    assert world.telemetry.problems == []
    assert dead.messages == []


def test_notification_of_newer_format_is_kept(world: Executors) -> None:
    submit_and_run(world, "FAILED")
    (record,) = world.records()
    later = {**record, "body": record["body"].replace('{"n":1', '{"n":2')}
    assert world.invoke([later]) == [record["messageId"]]
    assert [name for name, _ in world.telemetry.problems] == ["message_unreadable"]
