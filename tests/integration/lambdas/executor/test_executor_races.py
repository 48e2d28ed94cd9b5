"""Claims and finishes while other writers change the same job, and messages that say too much."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.aws.sqs.run_queue import parse_message
from punctual.domain.errors import Invalid
from punctual.domain.run import RunStatus
from punctual.engine.ports.rows import JobKey
from tests.support.aws.moto_faults import lost_answers, refused
from tests.support.builders import after, an_id
from tests.support.deployed.drivers.executors import Executors, Record

READS, SWAPS = "BatchGetItem", "UpdateItem"
ALLOW = {"schedule_type": "CRON", "cron_expression": "0 0 * * *", "concurrency": "ALLOW"}


def job_now(world: Executors) -> tuple[JobKey, Record]:
    """A daily job with one run ordered now, and the message of that run."""
    key = world.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    world.jobs.run_now(*key)
    (record,) = world.records()
    return key, record


def finished_after(world: Executors, event: Any) -> None:
    """Handle all messages; `event` happens half a second after the start."""
    world.task_runner.at(after(0.5), event)
    world.invoke(world.records())


def test_claim_keeps_change_made_after_message_was_sent(world: Executors) -> None:
    key, record = job_now(world)
    world.jobs.change(*key, lambda old: {**old, "name": "another"})
    spent = world.aws.spend(lambda: world.invoke([record]))
    assert (spent[READS], spent[SWAPS]) == (3, 2), "the states twice, the definition; no swap lost"
    (stored,) = world.runtime.ports.job_states.load([key]).values()
    assert (stored.state.edition, stored.state.runs) == (2, ())
    assert world.status(key) is RunStatus.SUCCESS


def test_claim_of_cancelled_job_starts_nothing(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    world.jobs.cancel(*key)
    assert world.invoke([record]) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.task.ran == []


def test_claim_with_lost_answer_starts_run_once(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    with lost_answers(world.aws.clients.dynamodb, SWAPS, 1):
        assert world.invoke([record]) == []
    assert world.run(key).run.attempt == 1
    assert len(world.task.ran) == 1


def test_claim_after_store_failure_sees_cancel(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    refusing: list[Any] = []
    client = world.aws.clients.dynamodb
    for operation in (SWAPS, READS):
        refusing.append(refused(client, operation, 9, "ThrottlingException"))
        refusing[-1].__enter__()

    def paused() -> None:
        for refusal in refusing:
            refusal.__exit__(None, None, None)
        world.jobs.cancel(*key)

    world.task_runner.at(after(0.5), paused)
    assert world.invoke([record]) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.task.ran == []


def test_claim_ignores_job_state_in_message(world: Executors) -> None:
    key, record = job_now(world)
    values = json.loads(record["body"])
    state = {"version": values["v"], "writers": ["guessed"], "next_at": "2026-04-01T00:00:00Z"}
    before = set(world.aws.timers())
    world.invoke([{**record, "body": json.dumps({**values, "h": [2, state]})}])
    (stored,) = world.runtime.ports.job_states.load([key]).values()
    assert stored.state.next_at == datetime(2026, 3, 3, tzinfo=UTC)
    assert set(world.aws.timers()) <= before
    assert world.status(key) is RunStatus.SUCCESS, "the run itself exists, and runs"


@pytest.mark.parametrize("version", [0, -1, 10**11])
def test_claim_of_unknown_job_writes_nothing(world: Executors, version: int) -> None:
    _, record = job_now(world)
    victim = JobKey("victim", an_id(77))
    named = {"t": victim.tenant, "j": victim.job_id, "v": version}
    before = set(world.aws.timers())
    world.invoke([{**record, "body": json.dumps({**json.loads(record["body"]), **named})}])
    assert world.runtime.ports.job_states.load([victim]) == {}
    assert set(world.aws.timers()) <= before


def test_message_with_due_time_without_zone_is_rejected(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    body = json.dumps({**json.loads(record["body"]), "due": "2026-03-02T12:00:00"})
    with pytest.raises(Invalid):
        parse_message(body)
    assert world.invoke([{**record, "body": body, "messageId": "other"}, record]) == ["other"]
    assert world.status(key) is RunStatus.SUCCESS


def test_two_messages_of_one_job_in_one_batch_both_run(world: Executors) -> None:
    key: JobKey = world.submit(**ALLOW, max_concurrency=2)
    world.jobs.run_now(*key)
    world.jobs.run_now(*key)
    records = world.records()
    assert len(records) == 2
    assert world.invoke(records) == []
    assert len(world.task.ran) == 2


def test_finish_keeps_run_requested_during_task(world: Executors) -> None:
    key = world.submit(**ALLOW, payload={"lasts": 1})
    first = world.jobs.run_now(*key)
    finished_after(world, lambda: world.jobs.run_now(*key))
    assert world.search.run(*key, first.run.run_id).run.status is RunStatus.SUCCESS
    (record,) = world.records()
    world.invoke([record])
    (stored,) = world.runtime.ports.job_states.load([key]).values()
    assert stored.state.runs == ()


def test_finish_without_claim_changes_nothing(world: Executors) -> None:
    key = world.submit(payload={"lasts": 1})

    def given_back() -> None:
        (stored,) = world.runtime.ports.job_states.load([key]).values()
        (run,) = stored.state.runs
        world.runtime.executor.return_claim(key, run.run_id, run.token, work_begun=True)

    finished_after(world, given_back)
    assert world.status(key) is RunStatus.QUEUED
    assert "run_taken_over" in [name for name, _ in world.telemetry.infos]


def test_finish_with_lost_answer_counts_one_attempt(world: Executors) -> None:
    key = world.submit(payload={"lasts": 1, "error": "no"}, max_retries=2)
    lost: list[Any] = []

    def begin() -> None:
        lost.append(lost_answers(world.aws.clients.dynamodb, SWAPS, 1))
        lost[0].__enter__()

    finished_after(world, begin)
    lost[0].__exit__(None, None, None)
    run = world.run(key).run
    assert (run.status, run.attempt) == (RunStatus.WAITING, 2)


def test_finish_is_retried_while_store_refuses(world: Executors) -> None:
    key = world.submit(payload={"lasts": 1})
    refusing: list[Any] = []

    def begin() -> None:
        refusing.append(refused(world.aws.clients.dynamodb, SWAPS, 5, "ThrottlingException"))
        refusing[0].__enter__()

    finished_after(world, begin)
    refusing[0].__exit__(None, None, None)
    assert world.status(key) is RunStatus.SUCCESS
