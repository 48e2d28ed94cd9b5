"""Leases of partitions: each step is a race with one winner, and no signal is lost."""

from datetime import datetime, timedelta

from punctual.engine.ports.partitions import PartitionLease
from tests.support.aws.adapters import World
from tests.support.builders import NOON, after
from tests.support.ports import Ports

MINUTE = timedelta(minutes=1)
UNTIL = after(60.000001)


def acquire(ports: Ports, owner: str = "p1", shard: int = 0) -> PartitionLease:
    lease = ports.partitions.acquire(NOON, shard, owner, NOON, UNTIL)
    assert lease is not None
    return lease


def test_lease_names_its_partition_owner_and_expiry(ports: Ports) -> None:
    lease = acquire(ports, shard=3)
    assert (lease.bucket, lease.shard, lease.owner, lease.expires_at) == (NOON, 3, "p1", UNTIL)


def test_partition_with_a_valid_lease_is_not_leased_again(ports: Ports) -> None:
    acquire(ports)
    last = UNTIL - timedelta(microseconds=1)
    assert ports.partitions.acquire(NOON, 0, "p2", last, after(99)) is None


def test_buckets_and_shards_are_leased_separately(ports: Ports) -> None:
    acquire(ports)
    assert ports.partitions.acquire(NOON, 1, "p2", NOON, UNTIL) is not None
    assert ports.partitions.acquire(NOON + MINUTE, 0, "p2", NOON, UNTIL) is not None


def test_ended_lease_is_granted_again_with_a_higher_token(ports: Ports) -> None:
    old = acquire(ports)
    new = ports.partitions.acquire(NOON, 0, "p2", UNTIL, after(120))
    assert new is not None
    assert new.token > old.token


def test_old_token_is_refused_everywhere(ports: Ports) -> None:
    old = acquire(ports)
    new = ports.partitions.acquire(NOON, 0, "p2", UNTIL, after(120))
    assert new is not None
    assert ports.partitions.renew(old, after(200)) is None
    assert ports.partitions.release(old) is False
    assert ports.partitions.mark_done(old) is False
    assert ports.partitions.renew(new, after(200)) is not None


def test_holder_that_acquires_again_gets_its_lease(ports: Ports) -> None:
    """So the holder learns of a signal, and recovers from a lost answer."""
    first = acquire(ports)
    again = ports.partitions.acquire(NOON, 0, "p1", after(1), after(90))
    assert again is not None
    assert again.token >= first.token
    assert again.expires_at == after(90)


def test_renewed_lease_expires_later(ports: Ports) -> None:
    renewed = ports.partitions.renew(acquire(ports), after(120))
    assert renewed is not None
    assert renewed.expires_at == after(120)
    assert ports.partitions.acquire(NOON, 0, "p2", after(119), after(180)) is None


def test_released_partition_is_free(ports: Ports) -> None:
    old = acquire(ports)
    assert ports.partitions.release(old) is True
    new = ports.partitions.acquire(NOON, 0, "p2", after(1), UNTIL)
    assert new is not None
    assert new.token > old.token
    assert ports.partitions.renew(old, after(200)) is None


def test_signal_of_new_timers_stops_release_until_read_again(world: World) -> None:
    partitions = world.ports.partitions
    lease = acquire(world.ports)
    signalled = partitions.signal_new_timers(NOON, 0)
    assert signalled is not None
    assert signalled.signal_count > lease.signal_count
    assert signalled.token == lease.token
    assert partitions.renew(lease, after(120)) is None
    assert partitions.release(lease) is False
    assert partitions.mark_done(lease) is False
    reacquired = partitions.acquire(NOON, 0, "p1", NOON, UNTIL)
    assert reacquired is not None
    assert reacquired.signal_count == signalled.signal_count
    assert partitions.release(reacquired) is True


def test_each_signal_counts(world: World) -> None:
    partitions = world.ports.partitions
    acquire(world.ports)
    first, second = partitions.signal_new_timers(NOON, 0), partitions.signal_new_timers(NOON, 0)
    assert first is not None
    assert second is not None
    assert partitions.renew(first, after(120)) is None
    assert partitions.renew(second, after(120)) is not None


def test_signal_to_a_free_partition_returns_none(world: World) -> None:
    partitions = world.ports.partitions
    assert partitions.signal_new_timers(NOON, 0) is None
    lease = acquire(world.ports)
    assert partitions.signal_new_timers(NOON, 1) is None
    assert partitions.release(lease)
    assert partitions.signal_new_timers(NOON, 0) is None


def test_signal_to_an_ended_lease_returns_none(world: World) -> None:
    acquire(world.ports)
    world.clock.set(UNTIL)
    assert world.ports.partitions.signal_new_timers(NOON, 0) is None


def test_done_partition_is_never_leased_again(ports: Ports) -> None:
    lease = acquire(ports)
    assert ports.partitions.is_done(NOON, 0) is False
    assert ports.partitions.mark_done(lease) is True
    assert ports.partitions.is_done(NOON, 0) is True
    assert ports.partitions.is_done(NOON, 1) is False
    assert ports.partitions.is_done(NOON + MINUTE, 0) is False
    assert ports.partitions.acquire(NOON, 0, "p1", after(999), after(1_060)) is None
    assert ports.partitions.signal_new_timers(NOON, 0) is None


def test_done_partition_cannot_be_released_or_renewed(ports: Ports) -> None:
    lease = acquire(ports)
    ports.partitions.mark_done(lease)
    assert ports.partitions.renew(lease, after(120)) is None
    ports.partitions.release(lease)
    assert ports.partitions.is_done(NOON, 0) is True


def test_watermark_moves_only_from_its_present_value(ports: Ports) -> None:
    partitions = ports.partitions
    assert partitions.watermark() is None
    assert partitions.advance_watermark(NOON, NOON + MINUTE) is False
    assert partitions.advance_watermark(None, NOON) is True
    assert partitions.advance_watermark(None, NOON + MINUTE) is False
    assert partitions.advance_watermark(NOON - MINUTE, NOON + MINUTE) is False
    assert partitions.watermark() == NOON
    assert partitions.advance_watermark(NOON, NOON + MINUTE) is True
    assert partitions.watermark() == NOON + MINUTE


def test_shard_count_only_grows(ports: Ports) -> None:
    assert max(1, ports.partitions.shard_count()) == 1
    ports.partitions.raise_shard_count(8)
    ports.partitions.raise_shard_count(4)
    assert ports.partitions.shard_count() == 8
    ports.partitions.raise_shard_count(64)
    assert ports.partitions.shard_count() == 64


def close_bucket(ports: Ports, bucket: datetime) -> None:
    lease = ports.partitions.acquire(bucket, 0, "p1", bucket, bucket + MINUTE)
    assert lease is not None
    assert ports.partitions.mark_done(lease)


def test_buckets_closed_by_a_clock_ahead_are_reopened(ports: Ports) -> None:
    partitions = ports.partitions
    partitions.advance_watermark(None, NOON)
    for number in range(4):
        close_bucket(ports, NOON + number * MINUTE)
    partitions.advance_watermark(NOON, NOON + 4 * MINUTE)
    assert partitions.reopen(NOON + 2 * MINUTE, NOON + MINUTE) is True
    assert partitions.watermark() == NOON + MINUTE
    assert [partitions.is_done(NOON + number * MINUTE, 0) for number in range(4)] == [
        *(True, False, False, False)
    ]
    assert partitions.acquire(NOON + 2 * MINUTE, 0, "p2", NOON, after(500)) is not None


def test_past_buckets_stay_closed(ports: Ports) -> None:
    partitions = ports.partitions
    partitions.advance_watermark(None, NOON)
    assert partitions.reopen(NOON, NOON - MINUTE) is False
    close_bucket(ports, NOON)
    partitions.advance_watermark(NOON, NOON + MINUTE)
    assert partitions.reopen(NOON + MINUTE, NOON - MINUTE) is False
    assert partitions.watermark() == NOON + MINUTE
    assert partitions.is_done(NOON, 0) is True


def test_reopened_bucket_is_closed_again(ports: Ports) -> None:
    partitions = ports.partitions
    partitions.advance_watermark(None, NOON)
    close_bucket(ports, NOON)
    partitions.advance_watermark(NOON, NOON + MINUTE)
    assert partitions.reopen(NOON, NOON) is True
    assert partitions.reopen(NOON, NOON) is False, "no closed bucket is left"
    close_bucket(ports, NOON)
    assert partitions.is_done(NOON, 0) is True
