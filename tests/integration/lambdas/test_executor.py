"""Executor functions: batches, message times, heartbeats, cancels, deadlines, outputs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys as row_keys
from punctual.aws.sqs.run_queue import parse_message, to_body
from punctual.domain.errors import NotFound
from punctual.domain.run import Reason, RunStatus
from punctual.engine.changes.change import Result
from punctual.lambdas.telemetry import Metric, PowertoolsTelemetry
from punctual.tasks.contract import Outcome
from tests.support.aws.moto_faults import refused
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.executors import Executors, executors
from tests.support.item_size import item_size

JSON = "application/json"


@pytest.fixture
def world() -> Iterator[Executors]:
    with executors() as made:
        yield made


def elapsed(world: Executors) -> float:
    return (world.clock() - NOON).total_seconds()


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
    said = {
        "job_id": key.job_id,
        "run_id": run.run_id,
        "attempt": 1,
        "tenant": "acme",
        "status": "SUCCESS",
        "lateness": 250,
    }
    assert world.telemetry.infos == [("run_ended", said)]
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
    one, other = world.records()
    assert world.invoke([early(world, one, 1.75), other]) == []
    assert world.task_runner.begun_at == [NOON, after(1.75)], "the due run does not wait"
    assert {world.run(key).run.started_at for key in keys} == {NOON, after(1.75)}


def test_message_over_two_seconds_early_is_hidden_until_due_time(world: Executors) -> None:
    key = world.submit()
    (record,) = world.records()
    assert world.invoke([early(world, record, 7.2)]) == [record["messageId"]]
    assert world.hidden == [(0, 8)]
    assert world.status(key) is RunStatus.QUEUED
    assert elapsed(world) == 0, "the invocation does not wait"


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
    assert elapsed(world) - 4.1 <= 5


def test_task_that_ignores_cancel_is_abandoned_within_five_seconds(world: Executors) -> None:
    key = world.submit(payload={"lasts": 60, "stubborn": True})
    records = world.records()
    world.task_runner.at(after(4.1), lambda: world.jobs.cancel(*key))
    assert world.invoke(records) == []
    assert world.status(key) is RunStatus.CANCELLED
    assert elapsed(world) - 4.1 <= 5


def test_task_over_its_timeout_is_timed_out(world: Executors) -> None:
    key = world.submit(payload={"lasts": 60, "stubborn": True}, timeout_seconds=7, max_retries=0)
    assert world.invoke(world.records()) == []
    view = world.run(key)
    assert (view.run.status, view.detail.error) == (RunStatus.TIMED_OUT, "Timed out after 7 s")
    assert elapsed(world) == pytest.approx(7.5)


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
    assert elapsed(world) < 900


def test_run_without_time_left_is_returned_unstarted(world: Executors) -> None:
    key = world.submit()
    assert world.invoke(world.records(), seconds_left=5.5) == []
    run = world.run(key).run
    assert (run.status, run.return_count, run.past_attempts) == (RunStatus.QUEUED, 1, "")
    assert world.task.ran == []
    assert world.invoke(world.records()) == [], "the return sent a new message"
    assert world.status(key) is RunStatus.SUCCESS


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


TASKS = [
    {"type": "event"},
    {"type": "http", "url": "https://example.com/"},
    {"type": "lambda", "function": "report"},
]


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
    assert elapsed(world) < 60
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
        while elapsed(world) < 3_600:
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
    assert elapsed(world) < 40
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
    assert elapsed(world) < lasts + 15
    assert ("look_failed", theirs.job_id) in [
        (n, f.get("job_id")) for n, f in world.telemetry.problems
    ]
    world.set_layout(theirs, row_keys.ROW_LAYOUT)
    world.clock.set(after(120))
    world.evaluate_due_timers()
    world.clock.set(after(600))
    world.invoke([one for one in [*records, *world.records()] if theirs.job_id in one["body"]])
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


def put_objects(world: Executors) -> list[str]:
    bucket = world.aws.settings.bucket
    listed = world.aws.clients.s3.list_objects_v2(Bucket=bucket, Prefix="outputs/")
    return sorted(item["Key"] for item in listed.get("Contents", []))


def test_each_output_is_one_object_under_key_of_its_attempt(world: Executors) -> None:
    outs = ["a", "b" * 900, "c" * 200_000]
    keys = [world.submit(payload={"out": out, "type": JSON}) for out in outs]
    records = world.records()
    before = dict(world.aws.written)
    spent = world.aws.spend(lambda: world.invoke(records))
    assert spent["PutObject"] == 3
    assert world.aws.written["runs"] - before.get("runs", 0) == 4, (
        "three history rows, and one row of batch outcomes"
    )
    runs = [world.run(key).run.run_id for key in keys]
    wanted = [f"outputs/acme/{key.job_id}/{run}/1" for key, run in zip(keys, runs, strict=True)]
    assert put_objects(world) == sorted(wanted)
    assert [world.output_of(key) for key in keys] == [out.encode() for out in outs]
    stored = world.aws.clients.s3.head_object(Bucket=world.aws.settings.bucket, Key=wanted[0])
    assert stored["ContentType"] == JSON


def test_each_attempt_has_own_output_and_run_shows_last_one(world: Executors) -> None:
    key = world.submit(
        payload={"out": "said before it failed", "error": "no", "type": JSON},
        max_retries=1,
        retry={"backoff_seconds": 1, "jitter": False},
    )
    world.invoke(world.records())
    world.clock.advance(timedelta(seconds=10))
    world.evaluate_due_timers()
    world.invoke(world.records())
    run = world.run(key)
    assert run.run.status is RunStatus.FAILED
    named = f"outputs/acme/{key.job_id}/{run.run.run_id}"
    assert put_objects(world) == [f"{named}/1", f"{named}/2"]
    assert run.detail.output_blob == f"{named}/2"


def test_output_removed_from_bucket_is_not_found(world: Executors) -> None:
    key = world.submit(payload={"out": "said", "type": JSON})
    world.invoke(world.records())
    world.runtime.ports.blobs.delete([world.run(key).detail.output_blob])
    with pytest.raises(NotFound, match="has expired"):
        world.output_of(key)


def test_small_or_missing_output_makes_no_object(world: Executors) -> None:
    noted = world.submit(payload={"out": "e" * 36})
    silent = world.submit(payload={"out": "", "type": JSON})
    answered = world.submit(payload={"http_status": 204})
    records = world.records()
    assert "PutObject" not in world.aws.spend(lambda: world.invoke(records))
    assert world.output_of(noted) == b"e" * 36
    assert world.run(answered).detail.http_status == 204
    for key in (silent, answered):
        with pytest.raises(NotFound, match="The run has no output, or none yet"):
            world.output_of(key)


def test_job_with_discarded_output_stores_neither_output_nor_log(
    world: Executors,
) -> None:
    payloads = [{"out": "said", "log": "printed", "type": JSON}, {"out": "an-id"}]
    keys = [world.submit(payload=payload, output="discard") for payload in payloads]
    records = world.records()
    before = dict(world.aws.written)
    assert "PutObject" not in world.aws.spend(lambda: world.invoke(records))
    assert world.aws.written["runs"] - before.get("runs", 0) == 2, "only their history rows"
    for key in keys:
        run = world.run(key)
        assert (run.run.status, run.run.inline_output) == (RunStatus.SUCCESS, "")
        assert run.detail.discarded
        with pytest.raises(NotFound, match="no output: its job discards"):
            world.output_of(key)
        with pytest.raises(NotFound, match="no logs: its job discards"):
            world.search.logs(*key, run.run.run_id, 0)


def test_http_status_without_output_is_in_row_of_the_batch(world: Executors) -> None:
    keys = [world.submit(payload={"http_status": 204}) for _ in range(10)]
    records = world.records()
    before = dict(world.aws.written)
    world.invoke(records)
    assert world.aws.written["runs"] - before.get("runs", 0) == 11
    assert [world.run(key).detail.http_status for key in keys] == [204] * 10


def test_logs_are_read_at_any_offset(world: Executors) -> None:
    key = world.submit(payload={"out": "o" * 100, "log": "line one\nline two\n"})
    world.submit(payload={"out": "p" * 100, "log": "another's"})
    world.invoke(world.records(), role="test")  # no task of the deployed stages writes a log
    run_id = world.run(key).run.run_id
    assert world.run(key).detail.log_blob == f"logs/acme/{key.job_id}/{run_id}/1"
    assert world.search.logs(*key, run_id, 0).data == b"line one\nline two\n"
    assert world.search.logs(*key, run_id, 9).data == b"line two\n"
    assert world.search.logs(*key, run_id, 18).data == b""
    assert world.output_of(key) == b"o" * 100


def test_run_fails_with_reason_if_output_cannot_be_stored(world: Executors) -> None:
    """The executor tries once a second, for ten seconds."""
    key = world.submit(payload={"out": "said", "type": JSON}, max_retries=0)
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 99, "SlowDown", 503):
        assert world.invoke(records) == []
    view = world.run(key)
    assert view.run.status is RunStatus.FAILED
    assert view.detail.error.startswith("The output could not be stored")
    assert elapsed(world) == pytest.approx(10, abs=1)


def test_output_stored_on_retry_does_not_repeat_task(
    world: Executors,
) -> None:
    key = world.submit(payload={"out": "said", "type": JSON}, max_retries=0)
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 5, "SlowDown", 503):
        assert world.invoke(records) == []
    assert (world.output_of(key), len(world.task.ran)) == (b"said", 1)


def test_unstored_output_fails_only_its_own_run(
    world: Executors,
) -> None:
    outs = [{}, {"out": "said", "type": JSON}, {"out": "an-id"}, {"out": "x" * 200_000}]
    keys = [world.submit(payload=out, max_retries=0) for out in outs]
    records = world.records()
    with refused(world.aws.clients.s3, "PutObject", 999, "SlowDown", 503):
        assert world.invoke(records) == []
    ended = [world.run(key).run for key in keys]
    assert [run.status for run in ended] == [
        *(RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.SUCCESS, RunStatus.FAILED)
    ]
    waited = [round(((run.ended_at or NOON) - NOON).total_seconds()) for run in ended]
    assert waited == [0, 10, 0, 10], "runs without S3 output do not wait"


def test_log_line_and_history_row_of_run_are_small(
    world: Executors, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log lines cost by the byte, and rows by the kilobyte."""
    for number in range(9):
        world.submit(name="n" * 256, payload={"out": f"{number}", "times": 200, "type": JSON})
    noted = world.submit(payload={"out": "e" * 36})
    world.clock.set(NOON + timedelta(microseconds=123_456))
    # A separate name, because a logger keeps its first stream.
    world.runtime.log = PowertoolsTelemetry("executor-lines", "prod")
    world.invoke(world.records())
    lines = [line for line in capsys.readouterr().out.splitlines() if "run_ended" in line]
    assert len(lines) == 10
    assert max(len(line) for line in lines) <= 300
    assert world.output_of(noted) == b"e" * 36
    rows = world.aws.rows("runs")
    assert len(rows) == 11, "ten history rows and one row of batch outcomes"
    assert max(item_size(row) for row in rows) <= 1_024


def test_hanging_heartbeat_does_not_delay_answer(world: Executors) -> None:
    key = world.submit(payload={"lasts": 5})
    world.task_runner.beside = [0, 60]  # first the visibility call, then the heartbeat
    assert world.invoke(world.records()) == []
    assert world.status(key) is RunStatus.SUCCESS
    assert elapsed(world) == pytest.approx(7, abs=1)
