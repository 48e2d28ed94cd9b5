"""The poller's function: there when something is due, and never longer than it pays."""

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
from tests.support.deployed.dispatch import Dispatch, dispatch
from tests.support.deployed.sqs import record

THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as made:
        made.planner.tick()
        yield made


def lateness(deployed: Dispatch) -> list[float]:
    """Seconds from each run's time to its message; early ones are negative."""
    return [(sent - message.due_at).total_seconds() for sent, message in deployed.sent]


def future(deployed: Dispatch, seconds: float, **fields: Any) -> str:
    when = after(seconds).isoformat()
    return deployed.submit(schedule_type="FUTURE", schedule_time=when, **fields).job_id


def leases(deployed: Dispatch) -> list[dict[str, Any]]:
    rows = deployed.aws.rows(keys.CONTROL_TABLE.name)
    return [row for row in rows if "#lease" in row[keys.PK]["S"] and keys.OWNER_ATTR in row]


def test_a_run_is_sent_up_to_a_second_before_its_time_and_the_place_given_back(
    deployed: Dispatch,
) -> None:
    future(deployed, 300)
    deployed.run(after(400))
    (late,) = lateness(deployed)
    assert -1 <= late <= 0
    assert leases(deployed) == []
    assert deployed.slept < timedelta(seconds=3)
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []


def test_a_recurring_run_costs_six_writes(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="INTERVAL", interval_seconds=600)
    deployed.run(after(580))
    before, calls = Counter(deployed.aws.written), Counter(deployed.aws.calls)
    deployed.run(after(640), ticks=False)
    spent = deployed.aws.written - before
    assert len(deployed.sent) == 1
    # Fired, claimed, finished; the next timer put, this one deleted; the line of history.
    assert (spent["jobs"], spent["timers"], spent["runs"]) == (3, 2, 1)
    assert spent["control"] == 2, "a lease taken and given back, for all that is due then"
    made = deployed.aws.calls - calls
    assert made["SendMessageBatch"] == 1, "the message itself; nobody is woken"
    assert deployed.head(key).latest_run_id == deployed.sent[0][1].run_id


def test_a_job_of_each_minute_wakes_one_poller_a_minute(deployed: Dispatch) -> None:
    deployed.submit(schedule_type="CRON", cron_expression="* * * * *")
    deployed.run(after(130))
    invocations, slept = deployed.invocations, deployed.slept
    before = Counter(deployed.aws.written)
    deployed.run(after(130 + 600))
    assert deployed.invocations - invocations == 10
    assert deployed.slept - slept < timedelta(seconds=30)
    spent = deployed.aws.written - before
    assert spent["timers"] == 20
    assert spent["control"] <= 20 + 3, "two a minute for its lease, and the watermark"
    assert all(-1 <= late <= 0 for late in lateness(deployed))


def test_in_a_long_gap_it_goes_and_is_called_again(deployed: Dispatch) -> None:
    for second in (302, 312, 330, 331, 333):
        future(deployed, second)
    deployed.run(after(400))
    assert [due for due, _ in deployed.runs_sent()] == [302, 312, 330, 331, 333]
    assert all(-1 <= late <= 0 for late in lateness(deployed))
    assert deployed.invocations == 3
    assert deployed.slept < timedelta(seconds=3 * 5)
    assert leases(deployed) == []


def test_a_void_wake_up_costs_one_query_and_no_write(deployed: Dispatch) -> None:
    place = TimerPartition(after(60), 0)
    deployed.aws.ports.wakeups.send_wake_up([place], NOON)
    letters = deployed.world.sqs.receive(deployed.wake, 10)
    event = deployed.event(letters)
    deployed.polling.handle(event, 60)
    before = Counter(deployed.aws.calls)
    assert deployed.polling.handle(event, 60) == {"batchItemFailures": []}
    assert dict(deployed.aws.calls - before) == {"Query": 1}


def test_what_is_far_is_called_for_later_without_taking_it(deployed: Dispatch) -> None:
    future(deployed, 170)
    deployed.wake.letters.clear()
    place = TimerPartition(after(120), 0)
    deployed.aws.ports.wakeups.send_wake_up([place], NOON)
    before = Counter(deployed.aws.written)
    deployed.deliver()
    assert deployed.called() == [(after(169), [place])]
    assert not deployed.aws.written - before


def test_a_wake_up_for_a_place_another_holds_is_a_nudge(deployed: Dispatch) -> None:
    future(deployed, 100)
    lease = deployed.aws.ports.partitions.acquire(after(60), 0, "another", after(98), after(150))
    assert lease is not None
    deployed.clock.set(after(98))
    assert deployed.deliver() == {"batchItemFailures": []}
    nudged = deployed.aws.ports.partitions.valid_leases([TimerPartition(after(60), 0)])
    assert [one.signal_count for one in nudged.values()] == [lease.signal_count + 1]
    assert deployed.aws.ports.partitions.release(lease) is False


def test_a_timer_put_while_a_poller_is_there_is_looked_at_on_time(deployed: Dispatch) -> None:
    """It learns of it within a second, from the nudge of the poller that came for it."""
    for second in range(300, 312, 3):
        future(deployed, second)
    other = PollerHandler(deployed.new_runtime())

    deployed.meanwhile.append((after(301.5), lambda: future(deployed, 305)))
    deployed.meanwhile.append((after(303.6), lambda: deployed.deliver(other)))
    deployed.run(after(320))
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 303, 305, 306, 309]
    assert all(-1 <= late <= 0 for late in lateness(deployed))


def test_a_poller_knows_as_many_timers_as_its_pace_brings_and_for_all_its_visits(
    deployed: Dispatch,
) -> None:
    """What it had forgotten it would look for, moment by moment, before each delete."""
    runtime = deployed.new_runtime()
    runtime.cpu_share = 1.0
    real, made = runtime.ports.timers.with_cache_size, []
    runtime.ports.timers.with_cache_size = lambda most: made.append(most) or real(most)  # type: ignore
    for second in (300, 400):
        future(deployed, second)
    polling = PollerHandler(runtime)
    deployed.polling = polling
    deployed.run(after(460))
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 400]
    assert len(made) == 1
    assert made[0] >= 4 * 833 * 60, "two pages that are read, and as many timers put"


def test_a_nudge_against_a_poller_that_lets_go_is_not_lost(deployed: Dispatch) -> None:
    future(deployed, 300)
    other = PollerHandler(deployed.new_runtime())
    real = deployed.polling._runtime.ports.partitions.release
    told: list[bool] = []

    def slow(lease: Any) -> bool:
        if not told:
            with deployed.world.meter.as_role("test"):
                future(deployed, 301)
                deployed.deliver(other)
        told.append(real(lease))
        return told[-1]

    deployed.polling._runtime.ports.partitions.release = slow  # type: ignore[method-assign]
    deployed.run(after(330))
    assert told == [False, True]
    assert [due for due, _ in sorted(deployed.runs_sent())] == [300, 301]


def test_before_its_time_is_over_it_hands_over(deployed: Dispatch) -> None:
    deployed.timeout = 30.0
    for second in range(300, 330, 2):
        future(deployed, second)
    deployed.run(after(400))
    assert [due for due, _ in sorted(deployed.runs_sent())] == list(range(300, 330, 2))
    assert deployed.invocations >= 2
    assert all(late <= 1 for late in lateness(deployed))
    assert ("handed_over", {"places": 1}) in deployed.told.events
    assert leases(deployed) == []


def test_a_body_that_is_no_wake_up_comes_again_and_the_others_are_seen_to(
    deployed: Dispatch,
) -> None:
    job = future(deployed, 2)
    deployed.clock.set(after(2))
    letters = deployed.world.sqs.receive(deployed.wake, 10)
    event = deployed.event(letters)
    strange = record(deployed.wake, letters[0], "eu-central-1")
    event["Records"].append({**strange, "messageId": "strange", "body": "{}"})
    assert deployed.polling.handle(event, 60) == {
        "batchItemFailures": [{"itemIdentifier": "strange"}]
    }
    deployed.collect()
    assert deployed.runs_sent() == [(2, job)]
    assert deployed.told.wrong == ["wake_up_refused"]


def test_a_throttled_table_loses_nothing(deployed: Dispatch) -> None:
    future(deployed, 300)
    deployed.clock.set(after(297))
    deployed.planner.tick()
    dynamodb = deployed.aws.clients.dynamodb
    with refused(dynamodb, "BatchWriteItem", 30, THROTTLED):
        deployed.run(after(310), ticks=False)
    assert "look_failed" in deployed.told.wrong
    deployed.run(after(420))
    assert len({message.run_id for _, message in deployed.sent}) == 1
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []


def test_a_visit_that_fails_is_asked_for_again_and_leaves_no_lease(deployed: Dispatch) -> None:
    future(deployed, 300)
    deployed.clock.set(after(299))
    deployed.planner.tick()
    with unreached(deployed.aws.clients.dynamodb, "Query", 9):
        answer = deployed.deliver()
    assert answer is not None
    assert len(answer["batchItemFailures"]) == 1
    assert leases(deployed) == []
    deployed.run(after(299 + 200), ticks=False)
    assert len(deployed.sent) == 1, "the wake-up came again"


def test_a_poller_that_died_is_replaced_when_its_lease_is_over(deployed: Dispatch) -> None:
    future(deployed, 300)
    deployed.clock.set(after(297))
    deployed.planner.tick()
    deployed.aws.ports.partitions.acquire(after(300), 0, "dead", after(297), after(357))
    deployed.wake.letters.clear()
    deployed.run(after(480), at_second=30)
    ((at, _),) = deployed.sent
    assert at <= after(391)


def test_a_head_that_nobody_can_read_keeps_no_other_of_its_minute_from_running(
    deployed: Dispatch,
) -> None:
    at = after(100).isoformat()
    broken, other = (deployed.submit(schedule_type="FUTURE", schedule_time=at) for _ in range(2))
    spoil(deployed, broken)
    deployed.run(after(300))
    assert {job for _, job in deployed.runs_sent()} == {other.job_id}
    told = [fields.get("job_id") for name, fields in deployed.told.events if name == "look_failed"]
    assert set(told) == {broken.job_id}
    assert set(deployed.told.wrong) == {"look_failed"}, "a person should look at it"
    deployed.run(after(3 * 3600))
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == [], (
        "it is set aside, and the watermark goes on"
    )
    assert set(deployed.told.wrong) == {"look_failed", "look_set_aside"}
    assert deployed.told.latest[Metric.WATERMARK_LAG] < 180


def test_a_head_of_a_later_version_is_waited_for_and_keeps_no_other_of_its_minute(
    deployed: Dispatch,
) -> None:
    at = after(100).isoformat()
    theirs, other = (deployed.submit(schedule_type="FUTURE", schedule_time=at) for _ in range(2))
    outdate(deployed, theirs, keys.ROW_LAYOUT + 1)
    deployed.run(after(3 * 3600))
    assert {job for _, job in deployed.runs_sent()} == {other.job_id}
    assert set(deployed.told.wrong) == {"look_failed"}, "and it is never set aside"
    assert len(deployed.aws.rows(keys.TIMERS_TABLE.name)) == 1
    outdate(deployed, theirs, keys.ROW_LAYOUT)
    deployed.run(after(3 * 3600 + 600))
    assert {job for _, job in deployed.runs_sent()} == {theirs.job_id, other.job_id}


def test_timers_in_rows_of_a_later_layout_wait_and_keep_no_other_of_their_minute(
    deployed: Dispatch,
) -> None:
    """As after a roll back over it: what this version can read is fired, and it is told."""
    at = after(100)
    theirs = together(deployed, at, 3)
    (shared,) = deployed.aws.rows(keys.TIMERS_TABLE.name)
    relaid = {**shared, keys.LAYOUT_ATTR: {"N": str(keys.SHARED_TIMERS_LAYOUT + 1)}}
    put_row(deployed, relaid)
    other = deployed.submit(schedule_type="FUTURE", schedule_time=at.isoformat())
    behind = deployed.submit(schedule_type="FUTURE", schedule_time=after(3600).isoformat())
    deployed.run(after(3 * 3600))
    assert deployed.runs_sent() == [(100, other.job_id), (3600, behind.job_id)]
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == [relaid]
    assert set(deployed.told.wrong) == {"timers_of_a_later_version"}
    assert deployed.aws.ports.partitions.watermark() == bucket_of(at), "it is not done"
    assert deployed.told.latest[Metric.WATERMARK_LAG] > 10_000
    put_row(deployed, shared)
    deployed.restart()
    deployed.run(after(3 * 3600 + 600))
    assert {job for _, job in deployed.runs_sent()[2:]} == {key.job_id for key in theirs}
    assert deployed.told.latest[Metric.WATERMARK_LAG] < 180


def test_what_somebody_saw_to_is_done_without_a_new_planner(deployed: Dispatch) -> None:
    together(deployed, after(100), 2)
    (shared,) = deployed.aws.rows(keys.TIMERS_TABLE.name)
    put_row(deployed, {**shared, keys.LAYOUT_ATTR: {"N": str(keys.SHARED_TIMERS_LAYOUT + 1)}})
    deployed.run(after(1_800))
    assert deployed.runs_sent() == []
    put_row(deployed, shared)
    deployed.run(after(2_400))
    assert len(deployed.runs_sent()) == 2
    assert deployed.aws.rows(keys.TIMERS_TABLE.name) == []
    assert deployed.told.latest[Metric.WATERMARK_LAG] < 180


def together(deployed: Dispatch, at: datetime, many: int) -> list[JobKey]:
    """Jobs of one batch, whose timers share a row."""
    document = {"name": "n", "schedule_type": "FUTURE", "schedule_time": at.isoformat()}
    views = deployed.jobs.submit("acme", "ada", [Submission(document)] * many)
    return [JobKey("acme", view.state.job_id) for view in views if isinstance(view, JobView)]


def put_row(deployed: Dispatch, row: dict[str, Any]) -> None:
    deployed.aws.clients.dynamodb.batch_write_item(
        RequestItems={deployed.aws.settings.timers_table: [{"PutRequest": {"Item": row}}]}
    )


def outdate(deployed: Dispatch, key: JobKey, layout: int) -> None:
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=keys.state_key(*key).item(),
        UpdateExpression="SET #f = :f",
        ConditionExpression="attribute_exists(#f)",
        ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR},
        ExpressionAttributeValues={":f": {"N": str(layout)}},
    )


def spoil(deployed: Dispatch, key: JobKey) -> None:
    """As an edit by hand would, or a version that knows more and was rolled back."""
    row = keys.state_key(*key)
    deployed.aws.clients.dynamodb.update_item(
        TableName=deployed.aws.settings.jobs_table,
        Key=row.item(),
        UpdateExpression="SET #state = :state",
        ConditionExpression="attribute_exists(#state)",
        ExpressionAttributeNames={"#state": keys.STATUS_ATTR},
        ExpressionAttributeValues={":state": {"S": "UNHEARD_OF"}},
    )


def test_dispatch_off_stops_a_poller_that_is_there(deployed: Dispatch) -> None:
    for second in range(300, 360, 3):
        future(deployed, second)
    deployed.run(after(280))
    deployed.meanwhile.append((after(304), lambda: deployed.turn(dispatch="off")))
    deployed.meanwhile.append((after(304), deployed.new_planner().tick))
    deployed.run(after(500), ticks=False)
    assert max(due for due, _ in deployed.runs_sent()) < 340
    deployed.turn(dispatch="on")
    deployed.run(after(800))
    assert len(deployed.sent) == 20


@pytest.mark.parametrize("gigabytes", [0.25, 1.0])
def test_the_gap_is_where_sleeping_gets_dearer_than_a_second_call(gigabytes: float) -> None:
    """Two writes for the lease, three requests to SQS, an invocation and 0.3 s of its start."""
    asleep = gigabytes * 1.33334e-5
    again = 2 * 0.625e-6 + 3 * 0.4e-6 + 0.2e-6 + 0.3 * asleep
    early = 1.5  # seconds that it comes before its time, by whole ones of SQS
    assert abs(again / asleep + early - MAX_POLLER_SLEEP.total_seconds()) < 0.75
