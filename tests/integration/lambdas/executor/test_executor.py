"""Executor functions: batches, message times, heartbeats, cancels, deadlines."""

from typing import Any

import pytest

from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.domain.run import RunStatus
from punctual.lambdas.telemetry import Metric
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors


def test_batch_is_claimed_and_finished_together(world: Executors) -> None:
    keys = [world.submit(payload={"out": f"id-{n}"}) for n in range(10)]
    records = world.records()
    spent = world.aws.spend(lambda: world.invoke(records))
    assert spent == {"BatchGetItem": 3, "UpdateItem": 20, "BatchWriteItem": 1, "DeleteMessage": 10}
    assert [world.status(key) for key in keys] == [RunStatus.SUCCESS] * 10
    assert len(set(world.task.ran)) == 10
    assert set(world.task_runner.begun_at) == {NOON}, "all tasks start at once"


def test_run_costs_three_writes(world: Executors) -> None:
    """The claim, the finish and the history row, which holds the small output."""
    world.submit(payload={"out": "e" * 36})
    records = world.records()
    before = dict(world.aws.written)
    spent = world.aws.spend(lambda: world.invoke(records))
    written = {name: n - before.get(name, 0) for name, n in world.aws.written.items()}
    assert {name: n for name, n in written.items() if n} == {"jobs": 2, "runs": 1}
    assert spent == {"BatchGetItem": 3, "UpdateItem": 2, "BatchWriteItem": 1, "DeleteMessage": 1}


def test_run_emits_one_log_line_and_its_metrics(world: Executors) -> None:
    key = world.submit()
    records = world.records()
    world.clock.set(after(0.25))
    world.invoke(records)
    run = world.run(key).run
    fields = {
        "job_id": key.job_id,
        "run_id": run.run_id,
        "attempt": 1,
        "tenant": "acme",
        "status": "SUCCESS",
        "lateness": 250,
    }
    assert world.telemetry.infos == [("run_ended", fields)]
    assert world.telemetry.measurements == [
        (Metric.STARTED, 1),
        (Metric.LATENESS, 250),
        (Metric.FINISHED, 1),
    ]


def test_failed_task_is_not_an_executor_failure(world: Executors) -> None:
    key = world.submit(payload={"error": "no luck"}, max_retries=1)
    other = world.submit()
    assert world.invoke(world.records()) == []
    assert (world.status(key), world.status(other)) == (RunStatus.WAITING, RunStatus.SUCCESS)
    assert world.run(key).attempts[0].detail.error == "no luck"
    assert world.telemetry.count(Metric.RETRIED) == 1
    world.clock.set(after(60))
    world.evaluate_due_timers()
    assert world.invoke(world.records()) == []
    assert world.status(key) is RunStatus.FAILED
    assert world.telemetry.count(Metric.FAILED) == 1


def early(world: Executors, record: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the message as a poller with a fast clock sends it."""
    message = parse_message(record["body"])._replace(due_at=after(seconds))
    return {**record, "body": to_body(message)}


def test_message_up_to_two_seconds_early_is_claimed_at_due_time(
    world: Executors,
) -> None:
    keys = [world.submit() for _ in range(2)]
    first, second = world.records()
    assert world.invoke([early(world, first, 1.75), second]) == []
    assert world.task_runner.begun_at == [NOON, after(1.75)], "the due run does not wait"
    assert {world.run(key).run.started_at for key in keys} == {NOON, after(1.75)}


def test_message_over_two_seconds_early_is_hidden_until_due_time(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    assert world.invoke([early(world, record, 7.2)]) == [record["messageId"]]
    assert world.hidden == [(0, 8)]
    assert world.status(key) is RunStatus.QUEUED
    assert world.elapsed_seconds == 0, "the invocation does not wait"


def test_due_time_of_job_state_overrides_that_of_message(world: Executors) -> None:
    key = world.submit(schedule_type="FUTURE", schedule_time=after(30).isoformat())
    world.runtime.evaluator.evaluate_jobs([key])
    ahead = world.runtime.ports.job_states.load([key])[key].state
    assert not ahead.runs
    world.clock.set(after(30))
    world.evaluate_due_timers()
    (record,) = world.records()
    world.clock.set(after(29.5))
    assert world.invoke([early(world, record, 29)]) == [record["messageId"]]
    assert world.hidden == [(29.5, 1)]


def test_unreadable_message_fails_alone_in_its_batch(world: Executors) -> None:
    key = world.submit()
    (good,) = world.records()
    later = {**good, "messageId": "later", "body": good["body"].replace('"f":1', '"f":2')}
    garbage = {**good, "messageId": "garbage", "body": "\0"}
    assert world.invoke([garbage, good, later]) == ["garbage", "later"]
    assert world.status(key) is RunStatus.SUCCESS
    assert [name for name, _ in world.telemetry.problems] == ["message_unreadable"] * 2


def test_message_delivered_twice_runs_once(world: Executors) -> None:
    key = world.submit(payload={"lasts": 1.5})
    (record,) = world.records()
    twin = {**record, "messageId": "twin"}
    assert world.invoke([record, twin]) == ["twin"]
    assert world.status(key) is RunStatus.SUCCESS
    assert len(world.task.ran) == 1
    assert world.invoke([twin]) == [], "the message is stale now"
    assert len(world.task.ran) == 1


def test_run_under_one_second_costs_no_heartbeat_and_no_visibility_call(world: Executors) -> None:
    world.submit(payload={"lasts": 0.9})
    spent = world.aws.spend(lambda: world.invoke(world.records()))
    assert spent["UpdateItem"] == 2
    assert "ChangeMessageVisibilityBatch" not in spent
    assert "DeleteMessageBatch" not in spent


def test_message_of_run_over_one_second_is_hidden_for_its_lease(
    world: Executors,
) -> None:
    world.submit(payload={"lasts": 3.9})
    records = world.records()
    spent = world.aws.spend(lambda: world.invoke(records))
    assert world.hidden == [(1, 30)]
    assert spent["UpdateItem"] == 2, "without a heartbeat"


def test_run_over_four_seconds_renews_lease_and_deletes_message(
    world: Executors,
) -> None:
    """The first heartbeat puts a timer. From then on the timer protects the run."""
    slow = world.submit(payload={"lasts": 13})
    fast = world.submit()
    records = world.records()
    before = world.aws.written["jobs"]
    spent = world.aws.spend(lambda: world.invoke(records))
    assert world.status(slow) is RunStatus.SUCCESS
    assert spent["DeleteMessageBatch"] == 1
    written = world.aws.written["jobs"] - before
    assert written == 4 + 3, "two swaps each, and a heartbeat every four seconds"
    assert world.run(fast).run.ended_at == after(0.2), "the fast run does not wait for the slow one"
    assert world.run(slow).run.ended_at == after(13)


def test_run_of_long_lane_renews_lease_with_its_claim(world: Executors) -> None:
    key = world.submit(payload={"lasts": 0.5}, timeout_seconds=900)
    records = world.records()
    assert records[0]["eventSourceARN"].endswith("-long.fifo")
    before = world.aws.written["jobs"]
    spent = world.aws.spend(lambda: world.invoke(records, lane="long", seconds_left=900))
    assert world.aws.written["jobs"] - before == 3
    assert spent["DeleteMessageBatch"] == 1
    assert world.status(key) is RunStatus.SUCCESS


def test_cancel_stops_running_task_within_five_seconds(
    world: Executors,
) -> None:
    key = world.submit(payload={"lasts": 60})
    records = world.records()
    world.task_runner.at(after(4.1), lambda: world.jobs.cancel(*key))
    assert world.invoke(records) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.elapsed_seconds - 4.1 <= 5


def test_task_that_ignores_cancel_is_abandoned_within_five_seconds(world: Executors) -> None:
    key = world.submit(payload={"lasts": 60, "stubborn": True})
    records = world.records()
    world.task_runner.at(after(4.1), lambda: world.jobs.cancel(*key))
    assert world.invoke(records) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert world.elapsed_seconds - 4.1 <= 5


def test_task_over_its_timeout_is_timed_out(world: Executors) -> None:
    key = world.submit(payload={"lasts": 60, "stubborn": True}, timeout_seconds=7, max_retries=0)
    assert world.invoke(world.records()) == []
    view = world.run(key)
    assert (view.run.status, view.detail.error) == (RunStatus.TIMED_OUT, "Timed out after 7 s")
    assert world.elapsed_seconds == pytest.approx(7.5)


def test_run_longer_than_invocation_is_stopped_with_reason(world: Executors) -> None:
    key = world.submit(
        payload={"lasts": 2_000, "stubborn": True}, timeout_seconds=900, max_retries=0
    )
    assert world.invoke(world.records(), lane="long", seconds_left=900) == []
    view = world.run(key)
    assert view.run.status is RunStatus.TIMED_OUT
    assert view.detail.error == (
        "Stopped after 895 s, because the executor had to end; the job allows 900 s"
    )
    assert world.elapsed_seconds < 900


def test_run_without_time_left_is_returned_unstarted(world: Executors) -> None:
    key = world.submit()
    assert world.invoke(world.records(), seconds_left=5.5) == []
    run = world.run(key).run
    assert (run.status, run.return_count, run.past_attempts) == (RunStatus.QUEUED, 1, "")
    assert world.task.ran == []
    assert world.invoke(world.records()) == [], "the return sent a new message"
    assert world.status(key) is RunStatus.SUCCESS
