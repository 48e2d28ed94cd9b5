"""Executor functions during outages: hanging calls, throttled tables, unreadable rows."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys as row_keys
from punctual.domain.run import Reason, RunStatus
from punctual.engine.changes.change import Result
from punctual.tasks.contract import Outcome
from tests.support.aws.moto_faults import refused
from tests.support.builders import after
from tests.support.deployed.drivers.executors import Executors

TASKS = [
    {"type": "event"},
    {"type": "http", "url": "https://example.com/"},
    {"type": "lambda", "function": "report"},
]


def test_attempt_without_renewal_for_ten_seconds_stops_as_lost(world: Executors) -> None:
    key = world.submit(payload={"lasts": 100})
    records = world.records()
    world.task_runner.beside = [0, 20]  # a heartbeat that hangs
    world.invoke(records)
    assert world.task_runner.ended_at == [after(11)], (
        "the task stops ten seconds after its last renewal"
    )
    assert world.run(key).run.past_attempts == "L"
    assert world.status(key) is RunStatus.QUEUED
    assert ("run_given_back", True) in [(n, f.get("begun")) for n, f in world.telemetry.infos]


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_attempt_that_could_not_begin_is_not_counted(
    world: Executors, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """The process has no file descriptor left. Nothing was sent, so the run did not fail."""
    full = Outcome("FAILED", "Too many open files", begun=False)
    with monkeypatch.context() as patched:
        patched.setattr(world.task, "run", lambda *_: full)
        key = world.submit(delivery=delivery)
        world.invoke(world.records())
    run = world.run(key).run
    assert (run.status, run.reason, run.past_attempts) == (RunStatus.WAITING, Reason.BACKOFF, "")
    for _ in range(20):
        world.clock.advance(timedelta(seconds=30))
        world.evaluate_due_timers()
        world.invoke(world.records())
    assert (world.status(key), world.run(key).run.attempt) == (RunStatus.SUCCESS, 1)
    assert len(world.task.ran) == 1


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task["type"]))
@pytest.mark.parametrize("listens", [True, False])
def test_store_outage_over_ten_seconds_loses_only_running_attempt(
    world: Executors, task: dict[str, str], listens: bool
) -> None:
    """After twenty seconds another executor may claim the run, so the attempt is abandoned."""
    deaf = {} if listens else {"stubborn": True}
    key = world.submit(task=task, payload={"lasts": 25, **deaf})
    short = world.submit(task=task, payload={"lasts": 3})
    records = world.records()
    world.task_runner.beside = [
        0,
        0,
        30,
        30,
    ]  # visibility, short finish; heartbeat, return
    world.invoke(records)
    run = world.run(key).run
    assert (run.status, run.past_attempts, run.attempt) == (RunStatus.QUEUED, "L", 2)
    assert world.status(short) is RunStatus.SUCCESS, (
        "a run that ends before its first heartbeat needs none"
    )
    (told,) = [fields for name, fields in world.telemetry.infos if name == "run_given_back"]
    assert told["begun"] is True
    world.clock.advance(timedelta(seconds=31))
    world.evaluate_due_timers()
    world.task_runner.beside = []
    world.invoke(world.records())
    assert (world.status(key), world.run(key).run.attempt) == (RunStatus.SUCCESS, 2)
    (former,) = world.run(key).attempts
    assert (former.number, former.lost) == (1, True), "the lost attempt does not use up a retry"


@pytest.mark.parametrize("hangs", [30, 60])
def test_hanging_finish_loses_no_claim(world: Executors, hangs: float) -> None:
    short, long = (world.submit(payload={"lasts": lasts}) for lasts in (2, 100))
    records = world.records()
    world.task_runner.beside = [0, hangs]  # first the visibility call, then the finish
    assert world.invoke(records) == []
    for key in (short, long):
        run = world.run(key).run
        assert (run.status, run.past_attempts) == (RunStatus.SUCCESS, "")
    assert world.run(short).run.ended_at == after(2.2 + hangs)
    assert world.run(long).run.ended_at == after(100)


def test_finish_hanging_until_invocation_end_is_repaired_by_timer(
    world: Executors,
) -> None:
    key = world.submit(payload={"lasts": 2})
    records = world.records()
    world.task_runner.beside = [0, 1_000]
    world.invoke(records, seconds_left=60)
    assert world.elapsed_seconds < 60
    assert ("finish_failed", 1) in [(n, f.get("runs")) for n, f in world.telemetry.problems]
    world.clock.advance(timedelta(seconds=60))
    world.evaluate_due_timers()
    world.invoke(world.records())
    assert world.status(key) is RunStatus.SUCCESS


def test_task_notices_expired_lease_while_executor_loop_hangs(
    world: Executors,
) -> None:
    """A claim or a finish of another run may block the loop for a minute."""
    key = world.submit(payload={"hangs": 11})
    world.invoke(world.records())
    run = world.run(key).run
    assert (run.status, run.past_attempts) == (RunStatus.QUEUED, "L")


def test_messages_back_off_longer_while_table_is_throttled(
    world: Executors,
) -> None:
    key = world.submit()
    (record,) = world.records()
    throttled = "ProvisionedThroughputExceededException"
    for receives, seconds in [(1, 30), (3, 120), (40, 300)]:
        attributes = {**record["attributes"], "ApproximateReceiveCount": str(receives)}
        client = world.aws.clients.dynamodb
        with (
            refused(client, "BatchGetItem", 99, throttled),
            refused(client, "UpdateItem", 99, throttled),
        ):
            came = world.invoke([{**record, "attributes": attributes}])
        assert came == [record["messageId"]]
        assert world.hidden[-1][1] == seconds
    assert world.status(key) is RunStatus.QUEUED
    assert world.invoke([record]) == []
    assert world.status(key) is RunStatus.SUCCESS


def test_unreadable_payload_delays_only_its_own_run(
    world: Executors,
) -> None:
    keys = [world.submit(payload={"x": "y" * size}) for size in (1, 10_000, 2)]
    records = world.records()
    with refused(world.aws.clients.s3, "GetObject", 99, "InternalError", 500):
        came = world.invoke(records)
    assert came == [], "a timer sends the run again"
    waiting = world.run(keys[1]).run
    assert (waiting.status, waiting.reason) == (RunStatus.WAITING, Reason.BACKOFF)
    assert (waiting.past_attempts, waiting.return_count) == ("", 1)
    assert [world.status(keys[0]), world.status(keys[2])] == [RunStatus.SUCCESS] * 2
    assert len(world.task.ran) == 2
    world.clock.set(after(60))
    world.evaluate_due_timers()
    assert world.invoke(world.records()) == []
    assert world.status(keys[1]) is RunStatus.SUCCESS


def test_payload_unreadable_for_an_hour_loses_at_most_one_attempt(
    world: Executors,
) -> None:
    """Five lost attempts end a run. One outage must not cause all five."""
    key = world.submit(payload={"x": "y" * 10_000}, max_retries=0)
    with refused(world.aws.clients.s3, "GetObject", 9_999, "InternalError", 500):
        while world.elapsed_seconds < 3_600:
            world.invoke(world.records())
            world.clock.advance(timedelta(seconds=15))
            world.evaluate_due_timers()
    run = world.run(key).run
    assert run.past_attempts in ("", "L")
    assert {name for name, _ in world.telemetry.problems} == {"claim_failed"}
    world.clock.advance(timedelta(minutes=5))
    world.evaluate_due_timers()
    world.invoke(world.records())
    assert world.status(key) is RunStatus.SUCCESS


def test_hanging_payload_reads_end_before_leases_expire(
    world: Executors,
) -> None:
    keys = [world.submit(payload={"x": "y" * 10_000}) for _ in range(6)]
    small = world.submit()
    records = world.records()
    s3 = world.aws.clients.s3

    def hang(**_: Any) -> None:
        world.clock.advance(timedelta(seconds=7))

    s3.meta.events.register_first("before-call.s3.GetObject", hang)
    with refused(s3, "GetObject", 999, "InternalError", 500):
        assert world.invoke(records) == []
    s3.meta.events.unregister("before-call.s3.GetObject", hang)
    assert world.elapsed_seconds < 40
    assert {world.run(key).run.past_attempts for key in [*keys, small]} == {""}
    assert {world.run(key).run.reason for key in keys} == {Reason.BACKOFF}


def test_unreadable_job_state_fails_alone_in_its_batch(
    world: Executors,
) -> None:
    broken, other = world.submit(), world.submit()
    records = world.records()
    world.make_unreadable(broken)
    assert world.invoke(records) == [
        record["messageId"] for record in records if broken.job_id in record["body"]
    ]
    assert world.status(other) is RunStatus.SUCCESS
    assert ("look_failed", broken.job_id) in [
        (n, f.get("job_id")) for n, f in world.telemetry.problems
    ]


def test_newer_job_state_format_backs_off_alone_in_its_batch(
    world: Executors,
) -> None:
    theirs, ours = world.submit(), world.submit()
    world.set_layout(theirs)
    records = world.records()
    (back,) = [record for record in records if theirs.job_id in record["body"]]
    assert world.invoke(records) == [back["messageId"]]
    assert world.status(ours) is RunStatus.SUCCESS
    for receives, seconds in [(3, 120), (40, 300)]:
        attributes = {**back["attributes"], "ApproximateReceiveCount": str(receives)}
        assert world.invoke([{**back, "attributes": attributes}]) == [back["messageId"]]
        assert world.hidden[-1][1] == seconds
    assert {(n, f["job_id"]) for n, f in world.telemetry.problems} == {
        ("look_failed", theirs.job_id)
    }
    world.set_layout(theirs, row_keys.ROW_LAYOUT)
    assert world.invoke([back]) == []
    assert world.status(theirs) is RunStatus.SUCCESS


@pytest.mark.parametrize("lasts", [2, 30])
def test_job_state_upgraded_during_run_delays_only_its_own_finish(
    world: Executors, lasts: float
) -> None:
    """During a deployment the new version changes a job that the old version runs."""
    theirs, ours = world.submit(payload={"lasts": lasts}), world.submit(payload={"lasts": lasts})
    records = world.records()
    world.task_runner.at(after(1), lambda: world.set_layout(theirs))
    world.invoke(records)
    assert world.status(ours) is RunStatus.SUCCESS
    assert world.run(ours).run.past_attempts == ""
    assert world.elapsed_seconds < lasts + 15
    assert ("look_failed", theirs.job_id) in [
        (n, f.get("job_id")) for n, f in world.telemetry.problems
    ]
    world.set_layout(theirs, row_keys.ROW_LAYOUT)
    world.clock.set(after(120))
    world.evaluate_due_timers()
    world.clock.set(after(600))
    world.invoke(
        [record for record in [*records, *world.records()] if theirs.job_id in record["body"]]
    )
    world.invoke(world.records())
    assert world.status(theirs) is RunStatus.SUCCESS


def test_payload_read_is_retried_under_same_claim(
    world: Executors,
) -> None:
    keys = [world.submit(payload={"x": "y" * size}) for size in (1, 10_000)]
    with refused(world.aws.clients.s3, "GetObject", 1, "InternalError", 500):
        assert world.invoke(world.records()) == []
    assert [world.status(key) for key in keys] == [RunStatus.SUCCESS] * 2
    assert world.run(keys[1]).run.past_attempts == ""


def test_run_with_nearly_expired_claim_is_returned_unstarted(
    world: Executors,
) -> None:
    """The read of a payload may take longer than the lease."""
    key = world.submit(payload={"x": "y" * 10_000})
    records = world.records()
    s3 = world.aws.clients.s3

    def hang(**_: Any) -> None:
        world.clock.advance(timedelta(seconds=25))

    s3.meta.events.register_first("before-call.s3.GetObject", hang)
    world.invoke(records)
    s3.meta.events.unregister("before-call.s3.GetObject", hang)
    assert world.task.ran == []
    run = world.run(key).run
    assert (run.status, run.return_count, run.past_attempts) == (RunStatus.WAITING, 1, "")


def test_message_is_kept_if_claim_cannot_be_returned(
    world: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap lost every time. Only the message still leads to the run."""
    key = world.submit()
    records = world.records()
    executor = world.runtime.executor
    contended = Result(None, effects_done=False, is_contended=True)
    monkeypatch.setattr(executor, "return_claim", lambda *_: contended)
    assert world.invoke(records, seconds_left=5.5) == [records[0]["messageId"]]
    monkeypatch.undo()
    world.clock.set(after(60))
    world.invoke(records)
    world.invoke(world.records())
    assert world.status(key) is RunStatus.SUCCESS


def test_short_throttling_delays_claim_and_finish(world: Executors) -> None:
    key = world.submit()
    records = world.records()
    with refused(world.aws.clients.dynamodb, "UpdateItem", 4, "ThrottlingException"):
        assert world.invoke(records) == []
    assert world.status(key) is RunStatus.SUCCESS
    assert len(world.task.ran) == 1


def test_hanging_heartbeat_does_not_delay_answer(world: Executors) -> None:
    key = world.submit(payload={"lasts": 5})
    world.task_runner.beside = [0, 60]  # first the visibility call, then the heartbeat
    assert world.invoke(world.records()) == []
    assert world.status(key) is RunStatus.SUCCESS
    assert world.elapsed_seconds == pytest.approx(7, abs=1)
