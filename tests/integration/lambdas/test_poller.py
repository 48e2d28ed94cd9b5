"""The poller function: it runs while timers are due, and no longer than that is cheaper."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.identifiers import bucket_of
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from punctual.lambdas.poller.handler import MAX_POLLER_SLEEP, PollerHandler
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_faults import refused, unreached
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch
from tests.support.deployed.sqs import record

THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as deployed:
        deployed.planner.tick()
        yield deployed


def lateness(deployed: Dispatch) -> list[float]:
    """Return the seconds from each due time to its message. Early ones are negative."""
    return [(sent - message.due_at).total_seconds() for sent, message in deployed.sent]


def submit_at(deployed: Dispatch, seconds: float, **fields: Any) -> str:
    when = after(seconds).isoformat()
    return deployed.submit(schedule_type="FUTURE", schedule_time=when, **fields).job_id


def leases(deployed: Dispatch) -> list[dict[str, Any]]:
    rows = deployed.aws.rows(keys.CONTROL_TABLE.name)
    return [row for row in rows if "#lease" in row[keys.PK]["S"] and keys.OWNER_ATTR in row]


def test_run_is_sent_within_second_before_due_time(
    deployed: Dispatch,
) -> None:
    submit_at(deployed, 300)
    deployed.run(after(400))
    (late,) = lateness(deployed)
    assert -1 <= late <= 0
    assert leases(deployed) == []
    assert deployed.slept < timedelta(seconds=3)
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []


def test_recurring_run_costs_six_writes(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="INTERVAL", interval_seconds=600)
    deployed.run(after(580))
    before, calls = Counter(deployed.aws.written), Counter(deployed.aws.calls)
    deployed.run(after(640), ticks=False)
    spent = deployed.aws.written - before
    assert len(deployed.sent) == 1
    # Fired, claimed, finished; the next timer put, this one deleted; the line of history.
    assert (spent["jobs"], spent["timers"], spent["runs"]) == (3, 2, 1)
    assert spent["control"] == 2, "one lease acquired and released"
    new_calls = deployed.aws.calls - calls
    assert new_calls["SendMessageBatch"] == 1, "the run's message, and no wake-up"
    assert deployed.job_state(key).latest_run_id == deployed.sent[0][1].run_id


def test_minutely_job_wakes_one_poller_a_minute(deployed: Dispatch) -> None:
    deployed.submit(schedule_type="CRON", cron_expression="* * * * *")
    deployed.run(after(130))
    invocations, slept = deployed.invocations, deployed.slept
    before = Counter(deployed.aws.written)
    deployed.run(after(130 + 600))
    assert deployed.invocations - invocations == 10
    assert deployed.slept - slept < timedelta(seconds=30)
    spent = deployed.aws.written - before
    assert spent["timers"] == 20
    assert spent["control"] <= 20 + 10, "each minute two for the lease, and the watermark"
    assert all(-1 <= late <= 0 for late in lateness(deployed))


def test_poller_ends_in_long_gap_and_is_woken_again(deployed: Dispatch) -> None:
    for second in (302, 312, 330, 331, 333):
        submit_at(deployed, second)
    deployed.run(after(400))
    assert [due for due, _ in deployed.runs_sent()] == [302, 312, 330, 331, 333]
    assert all(-1 <= late <= 0 for late in lateness(deployed))
    assert deployed.invocations == 3
    assert deployed.slept < timedelta(seconds=3 * 5)
    assert leases(deployed) == []


def test_needless_wake_up_costs_one_query_and_no_write(deployed: Dispatch) -> None:
    place = TimerPartition(after(60), 0)
    deployed.aws.ports.wakeups.send_wake_up([place], NOON)
    messages = deployed.world.sqs.receive(deployed.wake_queue, 10)
    event = deployed.event(messages)
    deployed.poller_handler.handle(event, 60)
    before = Counter(deployed.aws.calls)
    assert deployed.poller_handler.handle(event, 60) == {"batchItemFailures": []}
    assert dict(deployed.aws.calls - before) == {"Query": 1}


def test_wake_up_for_distant_timer_is_sent_again_without_lease(deployed: Dispatch) -> None:
    submit_at(deployed, 170)
    deployed.wake_queue.messages.clear()
    place = TimerPartition(after(120), 0)
    deployed.aws.ports.wakeups.send_wake_up([place], NOON)
    before = Counter(deployed.aws.written)
    deployed.deliver()
    assert deployed.wake_ups() == [(after(169), [place])]
    assert not deployed.aws.written - before


def test_wake_up_for_leased_partition_signals_its_poller(deployed: Dispatch) -> None:
    submit_at(deployed, 100)
    lease = deployed.aws.ports.partitions.acquire(after(60), 0, "another", after(98), after(150))
    assert lease is not None
    deployed.clock.set(after(98))
    assert deployed.deliver() == {"batchItemFailures": []}
    nudged = deployed.aws.ports.partitions.valid_leases([TimerPartition(after(60), 0)])
    assert [lease.signal_count for lease in nudged.values()] == [lease.signal_count + 1]
    assert deployed.aws.ports.partitions.release(lease) is False


def test_timer_put_during_session_is_evaluated_on_time(deployed: Dispatch) -> None:
    """The signal of a second poller reaches the first one within a second."""
    for second in range(300, 312, 3):
        submit_at(deployed, second)
    other = PollerHandler(deployed.new_runtime())

    deployed.planned_actions.append((after(301.5), lambda: submit_at(deployed, 305)))
    deployed.planned_actions.append((after(303.6), lambda: deployed.deliver(other)))
    deployed.run(after(320))
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 303, 305, 306, 309]
    assert all(-1 <= late <= 0 for late in lateness(deployed))


def test_timer_cache_of_poller_fits_its_pace(
    deployed: Dispatch,
) -> None:
    """A timer outside the cache costs a query before its delete."""
    runtime = deployed.new_runtime()
    runtime.cpu_share = 1.0
    real, sizes = runtime.ports.timers.with_cache_size, []
    runtime.ports.timers.with_cache_size = lambda size: sizes.append(size) or real(size)  # type: ignore
    for second in (300, 400):
        submit_at(deployed, second)
    polling = PollerHandler(runtime)
    deployed.poller_handler = polling
    deployed.run(after(460))
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 400]
    assert len(sizes) == 1
    assert sizes[0] >= 4 * 833 * 60, "two pages of read timers, and as many put timers"


def test_signal_during_release_is_not_lost(deployed: Dispatch) -> None:
    submit_at(deployed, 300)
    other = PollerHandler(deployed.new_runtime())
    real = deployed.poller_handler._runtime.ports.partitions.release
    told: list[bool] = []

    def slow(lease: Any) -> bool:
        if not told:
            with deployed.world.meter.as_role("test"):
                submit_at(deployed, 301)
                deployed.deliver(other)
        told.append(real(lease))
        return told[-1]

    deployed.poller_handler._runtime.ports.partitions.release = slow  # type: ignore[method-assign]
    deployed.run(after(330))
    assert told == [False, True]
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 301]


def test_poller_hands_over_before_its_timeout(deployed: Dispatch) -> None:
    deployed.timeout = 30.0
    for second in range(300, 330, 2):
        submit_at(deployed, second)
    deployed.run(after(400))
    assert [due for due, _ in sorted(deployed.runs_sent())] == list(range(300, 330, 2))
    assert deployed.invocations >= 2
    assert all(late <= 1 for late in lateness(deployed))
    assert ("handed_over", {"places": 1}) in deployed.telemetry.events
    assert leases(deployed) == []


def test_unreadable_wake_up_fails_alone_in_its_batch(
    deployed: Dispatch,
) -> None:
    job = submit_at(deployed, 2)
    deployed.clock.set(after(2))
    messages = deployed.world.sqs.receive(deployed.wake_queue, 10)
    event = deployed.event(messages)
    strange = record(deployed.wake_queue, messages[0], "eu-central-1")
    event["Records"].append({**strange, "messageId": "strange", "body": "{}"})
    assert deployed.poller_handler.handle(event, 60) == {
        "batchItemFailures": [{"itemIdentifier": "strange"}]
    }
    deployed.collect()
    assert deployed.runs_sent() == [(2, job)]
    assert deployed.telemetry.problem_names == ["wake_up_refused"]


def test_throttled_table_loses_no_run(deployed: Dispatch) -> None:
    submit_at(deployed, 300)
    deployed.clock.set(after(297))
    deployed.planner.tick()
    dynamodb = deployed.aws.clients.dynamodb
    with refused(dynamodb, "BatchWriteItem", 30, THROTTLED):
        deployed.run(after(310), ticks=False)
    assert "look_failed" in deployed.telemetry.problem_names
    deployed.run(after(420))
    assert len({message.run_id for _, message in deployed.sent}) == 1
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []


def test_failed_session_leaves_no_lease_and_is_retried(deployed: Dispatch) -> None:
    submit_at(deployed, 300)
    deployed.clock.set(after(299))
    deployed.planner.tick()
    with unreached(deployed.aws.clients.dynamodb, "Query", 9):
        answer = deployed.deliver()
    assert answer is not None
    assert len(answer["batchItemFailures"]) == 1
    assert leases(deployed) == []
    deployed.run(after(299 + 200), ticks=False)
    assert len(deployed.sent) == 1, "the wake-up was delivered again"


def test_dead_poller_is_replaced_after_its_lease(deployed: Dispatch) -> None:
    submit_at(deployed, 300)
    deployed.clock.set(after(297))
    deployed.planner.tick()
    deployed.aws.ports.partitions.acquire(after(300), 0, "dead", after(297), after(357))
    deployed.wake_queue.messages.clear()
    deployed.run(after(480), at_second=30)
    ((at, _),) = deployed.sent
    assert at <= after(391)


def test_unreadable_job_state_stops_no_other_run_of_its_minute(
    deployed: Dispatch,
) -> None:
    at = after(100).isoformat()
    broken, other = (deployed.submit(schedule_type="FUTURE", schedule_time=at) for _ in range(2))
    make_unreadable(deployed, broken)
    deployed.run(after(300))
    assert {job for _, job in deployed.runs_sent()} == {other.job_id}
    told = [
        fields.get("job_id") for name, fields in deployed.telemetry.events if name == "look_failed"
    ]
    assert set(told) == {broken.job_id}
    assert set(deployed.telemetry.problem_names) == {"look_failed"}, "the error is reported"
    deployed.run(after(3 * 3600))
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == [], (
        "the timer is parked, and the watermark advances"
    )
    assert set(deployed.telemetry.problem_names) == {"look_failed", "look_set_aside"}
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] < 180


def test_newer_job_state_format_waits_and_stops_no_other_run(
    deployed: Dispatch,
) -> None:
    at = after(100).isoformat()
    theirs, other = (deployed.submit(schedule_type="FUTURE", schedule_time=at) for _ in range(2))
    set_layout(deployed, theirs, keys.ROW_LAYOUT + 1)
    deployed.run(after(3 * 3600))
    assert {job for _, job in deployed.runs_sent()} == {other.job_id}
    assert set(deployed.telemetry.problem_names) == {"look_failed"}, "the timer is never parked"
    assert len(deployed.aws.rows(keys.TIMERS_TABLE.name)) == 1
    set_layout(deployed, theirs, keys.ROW_LAYOUT)
    deployed.run(after(3 * 3600 + 600))
    assert {job for _, job in deployed.runs_sent()} == {theirs.job_id, other.job_id}


def test_newer_timer_row_format_waits_and_stops_no_other_run(
    deployed: Dispatch,
) -> None:
    """After a rollback, readable timers fire, and the others are logged."""
    at = after(100)
    theirs = submit_together(deployed, at, 3)
    (shared,) = deployed.aws.rows(keys.TIMERS_TABLE.name)
    relaid = {**shared, keys.LAYOUT_ATTR: {"N": str(keys.SHARED_TIMERS_LAYOUT + 1)}}
    put_row(deployed, relaid)
    other = deployed.submit(schedule_type="FUTURE", schedule_time=at.isoformat())
    behind = deployed.submit(schedule_type="FUTURE", schedule_time=after(3600).isoformat())
    deployed.run(after(3 * 3600))
    assert deployed.runs_sent() == [(100, other.job_id), (3600, behind.job_id)]
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == [relaid]
    assert set(deployed.telemetry.problem_names) == {"timers_of_a_later_version"}
    assert deployed.aws.ports.partitions.watermark() == bucket_of(at), "the bucket is not done"
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] > 10_000
    put_row(deployed, shared)
    deployed.restart()
    deployed.run(after(3 * 3600 + 600))
    assert {job for _, job in deployed.runs_sent()[2:]} == {key.job_id for key in theirs}
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] < 180


def test_running_planner_handles_repaired_timer_rows(deployed: Dispatch) -> None:
    submit_together(deployed, after(100), 2)
    (shared,) = deployed.aws.rows(keys.TIMERS_TABLE.name)
    put_row(deployed, {**shared, keys.LAYOUT_ATTR: {"N": str(keys.SHARED_TIMERS_LAYOUT + 1)}})
    deployed.run(after(1_800))
    assert deployed.runs_sent() == []
    put_row(deployed, shared)
    deployed.run(after(2_400))
    assert len(deployed.runs_sent()) == 2
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] < 180


def submit_together(deployed: Dispatch, at: datetime, count: int) -> list[JobKey]:
    """Submit one batch of jobs. Their timers share a row."""
    document = {"name": "n", "schedule_type": "FUTURE", "schedule_time": at.isoformat()}
    views = deployed.jobs.submit("acme", "ada", [Submission(document)] * count)
    return [JobKey("acme", view.state.job_id) for view in views if isinstance(view, JobView)]


def put_row(deployed: Dispatch, row: dict[str, Any]) -> None:
    deployed.aws.clients.dynamodb.batch_write_item(
        RequestItems={deployed.aws.settings.timers_table: [{"PutRequest": {"Item": row}}]}
    )


def set_layout(deployed: Dispatch, key: JobKey, layout: int) -> None:
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=keys.state_key(*key).item(),
        UpdateExpression="SET #f = :f",
        ConditionExpression="attribute_exists(#f)",
        ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR},
        ExpressionAttributeValues={":f": {"N": str(layout)}},
    )


def make_unreadable(deployed: Dispatch, key: JobKey) -> None:
    """Store an unknown status, as a manual edit or a newer version does."""
    row = keys.state_key(*key)
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=row.item(),
        UpdateExpression="SET #state = :state",
        ConditionExpression="attribute_exists(#state)",
        ExpressionAttributeNames={"#state": keys.STATUS_ATTR},
        ExpressionAttributeValues={":state": {"S": "UNHEARD_OF"}},
    )


def test_dispatch_off_stops_running_poller(deployed: Dispatch) -> None:
    for second in range(300, 360, 3):
        submit_at(deployed, second)
    deployed.run(after(280))
    deployed.planned_actions.append((after(304), lambda: deployed.put_settings(dispatch="off")))
    deployed.planned_actions.append((after(304), deployed.new_planner().tick))
    deployed.run(after(500), ticks=False)
    assert max(due for due, _ in deployed.runs_sent()) < 340
    deployed.put_settings(dispatch="on")
    deployed.run(after(800))
    assert len(deployed.sent) == 20


@pytest.mark.parametrize("gigabytes", [0.25, 1.0])
def test_longest_sleep_costs_as_much_as_second_invocation(gigabytes: float) -> None:
    """A second call costs two writes, three SQS requests, an invocation and a 0.3 s start."""
    asleep = gigabytes * 1.33334e-5
    again = 2 * 0.625e-6 + 3 * 0.4e-6 + 0.2e-6 + 0.3 * asleep
    early = 1.5  # seconds before the due time, because SQS delays are whole seconds
    assert abs(again / asleep + early - MAX_POLLER_SLEEP.total_seconds()) < 0.75
