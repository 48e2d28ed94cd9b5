"""Operator settings and the dispatch switch: reads, caching and invalid values."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.partitions import DynamoPartitions
from punctual.aws.operator_settings import (
    DispatchSwitch,
    OperatorSettings,
    SsmOperatorSettings,
    SwitchedMessages,
)
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import Lane, Priority
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.run_queue import Message
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import refused, unreached
from tests.support.builders import NOON, ManualClock, after


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def aws(clock: ManualClock) -> Iterator[Moto]:
    with moto(clock) as aws:
        yield aws


def a_switch(aws: Moto, clock: ManualClock) -> DispatchSwitch:
    dynamo = DynamoClient(
        lambda: aws.clients.dynamodb, ThreadPool(1), RetryPolicy(aws.slept.append, "test", tries=2)
    )
    return DispatchSwitch(dynamo, aws.settings.control_table, clock)


def read(aws: Moto, **values: str) -> OperatorSettings:
    for name, value in values.items():
        aws.clients.ssm.put_parameter(
            Name=aws.settings.knobs + name, Value=value, Type="String", Overwrite=True
        )
    return SsmOperatorSettings(lambda: aws.clients.ssm, aws.settings.knobs).read()


def a_message(run: int) -> Message:
    return Message("t", "j", f"r{run}", NOON, Priority.NORMAL, Lane.QUICK, 1, "http")


def test_operator_settings_are_read(aws: Moto) -> None:
    assert read(aws, shards="64", pace=" 7 ", dispatch="off") == OperatorSettings(64, 7, False)
    assert read(aws, dispatch="on") == OperatorSettings(64, 7, True)


@pytest.mark.parametrize("value", ["Off", "OFF", "off "])
def test_dispatch_value_is_case_insensitive(aws: Moto, value: str) -> None:
    assert read(aws, shards="1", pace="7", dispatch=value) == OperatorSettings(1, 7, False)
    assert read(aws, dispatch="On") == OperatorSettings(1, 7, True)


def test_missing_settings_have_defaults_and_are_reported(aws: Moto) -> None:
    assert read(aws) == OperatorSettings(1, 30, True, ("dispatch", "shards", "pace"))


@pytest.mark.parametrize("value", ["0", "-1", "1001", "99999", "two", "", "1.5", "٣"])
def test_invalid_shard_count_is_reported_and_counts_as_one(aws: Moto, value: str) -> None:
    settings = read(aws, shards=value or " ", pace="5", dispatch="on")
    assert settings == OperatorSettings(1, 5, True, ("shards",))


def test_failing_parameter_store_is_unavailable(aws: Moto) -> None:
    with (
        refused(aws.clients.ssm, "GetParameters", 5, "AccessDeniedException"),
        pytest.raises(Unavailable),
    ):
        read(aws)


def test_dispatch_switch_is_read_once_in_thirty_seconds(aws: Moto, clock: ManualClock) -> None:
    planner, other = a_switch(aws, clock), a_switch(aws, clock)
    assert other.is_on()
    planner.set(False)
    assert aws.spend(other.is_on) == {}
    assert other.is_on(), "the cached value"
    clock.advance(timedelta(seconds=30))
    assert aws.spend(other.is_on) == {"BatchGetItem": 1}
    assert not other.is_on()
    assert aws.spend(lambda: planner.set(False)) == {"BatchGetItem": 1}, (
        "an unchanged value is not written"
    )
    planner.set(True)
    assert a_switch(aws, clock).is_on()


def test_dispatch_switched_on_is_seen_at_once(aws: Moto, clock: ManualClock) -> None:
    """Otherwise a poller drops a wake-up, and its sender sends no second one."""
    planner, other = a_switch(aws, clock), a_switch(aws, clock)
    planner.set(False)
    assert not other.is_on()
    planner.set(True)
    assert other.is_on()


def test_unreadable_dispatch_switch_keeps_its_value(aws: Moto, clock: ManualClock) -> None:
    a_switch(aws, clock).set(False)
    switch = a_switch(aws, clock)
    with unreached(aws.clients.dynamodb, "BatchGetItem", 9):
        assert switch.is_on()
    assert not switch.is_on()
    clock.advance(timedelta(seconds=31))
    with unreached(aws.clients.dynamodb, "BatchGetItem", 9):
        assert not switch.is_on()


def test_dispatch_switch_and_shard_count_share_a_row(aws: Moto, clock: ManualClock) -> None:
    a_switch(aws, clock).set(False)
    assert aws.ports.partitions.shard_count() == 1
    aws.ports.partitions.raise_shard_count(8)
    assert aws.ports.partitions.shard_count() == 8
    assert not a_switch(aws, clock).is_on()
    assert len(aws.rows("control")) == 1


def test_dispatch_off_sends_no_message(aws: Moto, clock: ManualClock) -> None:
    switch = a_switch(aws, clock)
    messages = SwitchedMessages(aws.ports.run_queue, switch)
    assert messages.send([a_message(1)]) == [True]
    switch.set(False)
    assert messages.send([a_message(2), a_message(3)]) == [False, False]
    assert [message.run_id for message in aws.delivered()] == ["r1"]


def test_valid_leases_are_read_in_one_call(aws: Moto, clock: ManualClock) -> None:
    dynamo = DynamoClient(
        lambda: aws.clients.dynamodb, ThreadPool(1), RetryPolicy(aws.slept.append, "test")
    )
    buckets = DynamoPartitions(dynamo, aws.settings.control_table, clock)
    mine = buckets.acquire(NOON, 0, "a", NOON, after(60))
    over = buckets.acquire(NOON, 1, "b", NOON, after(1))
    given = buckets.acquire(NOON, 2, "c", NOON, after(60))
    done = buckets.acquire(NOON, 3, "d", NOON, after(60))
    assert mine
    assert over
    assert given
    assert done
    assert buckets.release(given)
    assert buckets.mark_done(done)
    clock.set(after(1))
    places = [TimerPartition(NOON, shard) for shard in range(5)]
    assert buckets.valid_leases(places) == {TimerPartition(NOON, 0): mine}
    assert aws.spend(lambda: buckets.valid_leases(places)) == {"BatchGetItem": 1}
    assert aws.spend(lambda: buckets.valid_leases([])) == {}


def test_partition_lease_row_expires_after_a_week(aws: Moto) -> None:
    aws.ports.partitions.acquire(NOON, 0, "a", NOON, after(60))
    (row,) = aws.rows("control")
    assert int(row[keys.TTL]["N"]) == (after(60) + timedelta(days=7)).timestamp()
