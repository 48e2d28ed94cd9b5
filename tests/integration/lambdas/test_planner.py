"""The planner function: it peeks before it wakes pollers, and an empty minute writes nothing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import shard_of
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.timers import Timer
from punctual.lambdas.telemetry import Metric
from tests.support.aws.moto_faults import refused, unreached
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch
from tests.support.deployed.world import MINUTE

READS = ("BatchGetItem", "GetItem", "Query", "Scan")
WRITES = ("BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem", "TransactWriteItems")


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as deployed:
        yield deployed


def reads_and_writes(spent: dict[str, int]) -> tuple[int, int]:
    """Return the number of timer queries and of written rows. A tick also looks for operations."""
    assert set(spent) <= {"Query", "BatchGetItem", "SendMessageBatch", *WRITES}, spent
    return spent.get("Query", 0) - 1, sum(spent.get(name, 0) for name in WRITES)


@pytest.mark.parametrize("shards", [1, 3])
def test_empty_minute_costs_two_queries_a_shard_and_one_write(
    deployed: Dispatch, shards: int
) -> None:
    deployed.put_settings(shards=str(shards))
    for minute in range(3):
        deployed.clock.set(NOON + minute * MINUTE)
        deployed.planner.tick()
    for minute in range(3, 5):
        deployed.clock.set(NOON + minute * MINUTE)
        spent = deployed.spend(deployed.planner.tick)
        assert reads_and_writes(spent) == (2 * shards, 1), "the watermark"
        assert spent["BatchGetItem"] == 1, "the row of the shard count and the dispatch switch"
        assert "SendMessageBatch" not in spent
    assert not [row for row in deployed.aws.rows("control") if "lease" in row[keys.PK]["S"]]


def test_idle_planner_stores_watermark_each_minute(deployed: Dispatch) -> None:
    writes = []
    for minute in range(5):
        deployed.clock.set(NOON + minute * MINUTE)
        _, written = reads_and_writes(deployed.spend(deployed.planner.tick))
        writes.append(written)
    assert writes[1:] == [1] * 4
    assert deployed.aws.ports.partitions.watermark() == NOON + 3 * MINUTE
    assert deployed.new_runtime().ports.partitions.heartbeat() == NOON + 4 * MINUTE


def test_second_planner_starts_from_stored_watermark(
    deployed: Dispatch,
) -> None:
    for minute in range(4):
        deployed.clock.set(NOON + minute * MINUTE)
        deployed.planner.tick()
    stored = deployed.aws.ports.partitions.watermark()
    deployed.clock.set(NOON + 4 * MINUTE)
    deployed.new_planner().tick()
    deployed.planner.tick()
    assert stored is not None
    assert stored < deployed.aws.ports.partitions.watermark()  # type: ignore[operator]
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] == 60


def test_wake_up_is_sent_two_seconds_before_due_minute(
    deployed: Dispatch,
) -> None:
    deployed.submit(schedule_type="FUTURE", schedule_time=after(600).isoformat())
    for minute in range(9):
        deployed.clock.set(NOON + minute * MINUTE)
        deployed.planner.tick()
    (called,) = deployed.wake_ups()
    assert called == (after(598), [TimerPartition(after(600), 0)])
    assert not [row for row in deployed.aws.rows("control") if "lease" in row[keys.PK]["S"]]


def test_busy_shards_get_own_pollers_and_quiet_shards_share_one(
    deployed: Dispatch,
) -> None:
    deployed.put_settings(shards="4")
    deployed.planner.tick()
    put = deployed.aws.ports.timers.put
    quiet, busy = after(600), after(660)
    put([Timer(quiet, shard, quiet, "t", f"j{shard}", 1) for shard in range(4)])
    put([Timer(busy, shard, busy, "t", f"j{n}", 1) for shard in range(2) for n in range(200)])
    deployed.clock.set(after(540))
    deployed.planner = deployed.new_planner()
    deployed.planner.tick()
    assert deployed.wake_ups() == [
        (after(598), [TimerPartition(quiet, shard) for shard in range(4)]),
        (after(600), [TimerPartition(busy, 0)]),
        (after(600), [TimerPartition(busy, 1)]),
    ]


def test_repeated_ticks_start_each_run_once(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="FUTURE", schedule_time=after(600).isoformat())
    other = deployed.new_planner()
    deployed.clock.set(after(510))
    for planner in (deployed.planner, other, deployed.planner):
        planner.tick()
    deployed.run(after(700))
    assert deployed.runs_sent() == [(600, key.job_id)]


def test_planner_catches_up_three_hours_at_configured_pace(deployed: Dispatch) -> None:
    deployed.put_settings(pace="5")
    deployed.planner.tick()
    for minute in range(10, 25):
        deployed.submit(schedule_type="FUTURE", schedule_time=after(60 * minute).isoformat())
    deployed.clock.set(after(3 * 3600 + 7))
    calls = []
    for _ in range(3):
        deployed.planner.tick()
        calls.append(sum(len(places) for _, places in deployed.wake_ups()))
        while deployed.deliver() is not None:
            pass
        deployed.clock.advance(MINUTE)
    assert calls == [5, 5, 5]
    deployed.run(after(3 * 3600 + 900))
    assert len(deployed.runs_sent()) == 15
    deployed.planner.tick()
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] < 180


def test_raised_shard_count_loses_no_run(deployed: Dispatch) -> None:
    deployed.planner.tick()
    first = deployed.submit(schedule_type="FUTURE", schedule_time=after(300).isoformat())
    deployed.put_settings(shards="8")
    deployed.run(after(100))
    assert deployed.aws.ports.partitions.shard_count() == 8
    deployed.restart()
    deployed.put_settings(shards="2")  # a smaller value changes nothing
    later = [
        deployed.submit(schedule_type="FUTURE", schedule_time=after(300).isoformat())
        for _ in range(12)
    ]
    deployed.run(after(400))
    wanted = sorted(key.job_id for key in (first, *later))
    assert sorted(job for _, job in deployed.runs_sent()) == wanted
    assert deployed.aws.ports.partitions.shard_count() == 8


def test_lost_wake_up_is_sent_again_by_next_ticks(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="FUTURE", schedule_time=after(600).isoformat())
    deployed.clock.set(after(540))
    deployed.planner.tick()
    deployed.wake_queue.messages.clear()
    deployed.run(after(660), at_second=30)
    assert deployed.runs_sent() == [(600, key.job_id)]
    ((at, _),) = deployed.sent
    assert at < after(631)


def test_planner_with_failed_send_wakes_poller_at_next_tick(deployed: Dispatch) -> None:
    deployed.submit(schedule_type="FUTURE", schedule_time=after(600).isoformat())
    deployed.clock.set(after(510))
    with (
        unreached(deployed.aws.clients.sqs, "SendMessageBatch", 4),
        pytest.raises(Unavailable),
    ):
        deployed.planner.tick()
    assert deployed.wake_ups() == []
    deployed.clock.set(after(570))
    deployed.planner.tick()
    assert [places for _, places in deployed.wake_ups()] == [[TimerPartition(after(600), 0)]]


def test_unreadable_shard_holds_back_watermark(
    deployed: Dispatch,
) -> None:
    deployed.planner.tick()
    stood = deployed.aws.ports.partitions.watermark()
    deployed.clock.set(after(600))
    with refused(
        deployed.aws.clients.dynamodb, "Query", 100, "ProvisionedThroughputExceededException"
    ):
        deployed.planner.tick()
    assert deployed.telemetry.problem_names == ["places_unread", "operations_not_sent"]
    assert deployed.aws.ports.partitions.watermark() == stood
    deployed.planner.tick()
    assert deployed.telemetry.latest[Metric.WATERMARK_LAG] == 60


def test_dispatch_off_sends_no_run_until_on_again(deployed: Dispatch) -> None:
    key = deployed.submit(schedule_type="FUTURE", schedule_time=after(120).isoformat())
    deployed.put_settings(dispatch="off")
    deployed.run(after(400))
    assert deployed.runs_sent() == []
    assert deployed.new_runtime().dispatch_switch.is_on() is False
    now = deployed.submit(schedule_type="IMMEDIATE")
    deployed.collect()
    assert deployed.runs_sent() == [], "nothing is sent, and the run keeps its timer"
    deployed.put_settings(dispatch="on")
    deployed.run(after(800))
    assert {job for _, job in deployed.runs_sent()} == {key.job_id, now.job_id}


def test_invalid_or_unreadable_settings_do_not_stop_planner(deployed: Dispatch) -> None:
    deployed.put_settings(shards="many", pace="0", dispatch="maybe")
    deployed.planner.tick()
    assert deployed.telemetry.problem_names == ["knobs_wrong"]
    with refused(deployed.aws.clients.ssm, "GetParameters", 9, "InternalServerError", 500):
        deployed.planner.tick()
    assert deployed.telemetry.problem_names == ["knobs_wrong", "knobs_unread"]
    assert deployed.telemetry.metrics[Metric.TICKS] == 2


@pytest.mark.parametrize("value", ["of", "false", "stop"])
def test_invalid_dispatch_value_keeps_switch_and_is_logged(deployed: Dispatch, value: str) -> None:
    for turned in ("OFF", "on"):
        deployed.put_settings(dispatch=turned)
        deployed.planner.tick()
        deployed.put_settings(dispatch=value)
        deployed.planner.tick()
        deployed.new_planner().tick()
        assert deployed.new_runtime().dispatch_switch.is_on() is (turned == "on")
    assert deployed.telemetry.problem_names == ["knobs_wrong"] * 4


def test_new_planner_with_unreadable_settings_keeps_dispatch_off(
    deployed: Dispatch,
) -> None:
    deployed.put_settings(dispatch="off")
    deployed.planner.tick()
    anew = deployed.new_planner()
    with refused(deployed.aws.clients.ssm, "GetParameters", 9, "InternalServerError", 500):
        anew.tick()
    assert not deployed.new_runtime().dispatch_switch.is_on(), "the switch is still off"


def test_tick_wakes_pollers_in_time_with_slow_store(
    deployed: Dispatch,
) -> None:
    """A tick that reaches its timeout would wake no poller, and the next one neither."""
    deployed.put_settings(shards="40")
    deployed.planner.tick()
    jobs = [
        deployed.submit(schedule_type="FUTURE", schedule_time=after(900 + n).isoformat())
        for n in range(40)
    ]
    deployed.restart()
    deployed.clock.set(after(840))
    events = deployed.aws.clients.dynamodb.meta.events

    def slowly(**_: Any) -> None:
        deployed.clock.advance(timedelta(seconds=0.5))

    events.register("before-call.dynamodb.Query", slowly)
    for _ in range(6):
        began = deployed.clock()
        deployed.planner.tick()
        assert deployed.clock() - began < timedelta(seconds=35)
        deployed.clock.set(began + MINUTE)
    events.unregister("before-call.dynamodb.Query", slowly)
    called = {place for _, places in deployed.wake_ups() for place in places}
    due = {TimerPartition(after(900), shard_of(job, 40)) for _, job in jobs}
    assert due <= called


def test_tick_makes_bounded_number_of_reads(deployed: Dispatch) -> None:
    spent: dict[str, Any] = {}
    deployed.planner.tick()
    deployed.clock.advance(timedelta(minutes=1))
    spent = deployed.spend(deployed.planner.tick)
    assert "Scan" not in spent
    assert sum(spent.get(name, 0) for name in READS) <= 8
