"""Who looks after which minute: each step is a race that one wins, and no nudge is lost."""

from datetime import datetime, timedelta

from punctual.engine.ports.partitions import PartitionLease
from tests.support.aws.adapters import World
from tests.support.builders import NOON, after
from tests.support.ports import Ports

MINUTE = timedelta(minutes=1)
UNTIL = after(60.000001)


def taken(ports: Ports, owner: str = "p1", shard: int = 0) -> PartitionLease:
    lease = ports.partitions.acquire(NOON, shard, owner, NOON, UNTIL)
    assert lease is not None
    return lease


def test_a_lease_tells_what_it_is_of(ports: Ports) -> None:
    lease = taken(ports, shard=3)
    assert (lease.bucket, lease.shard, lease.owner, lease.expires_at) == (NOON, 3, "p1", UNTIL)


def test_while_one_holds_it_another_gets_none(ports: Ports) -> None:
    taken(ports)
    last = UNTIL - timedelta(microseconds=1)
    assert ports.partitions.acquire(NOON, 0, "p2", last, after(99)) is None


def test_each_place_is_its_own(ports: Ports) -> None:
    taken(ports)
    assert ports.partitions.acquire(NOON, 1, "p2", NOON, UNTIL) is not None
    assert ports.partitions.acquire(NOON + MINUTE, 0, "p2", NOON, UNTIL) is not None


def test_a_lease_that_ended_is_handed_out_with_a_higher_token(ports: Ports) -> None:
    old = taken(ports)
    new = ports.partitions.acquire(NOON, 0, "p2", UNTIL, after(120))
    assert new is not None
    assert new.token > old.token


def test_the_old_token_can_do_nothing_more(ports: Ports) -> None:
    old = taken(ports)
    new = ports.partitions.acquire(NOON, 0, "p2", UNTIL, after(120))
    assert new is not None
    assert ports.partitions.renew(old, after(200)) is None
    assert ports.partitions.release(old) is False
    assert ports.partitions.mark_done(old) is False
    assert ports.partitions.renew(new, after(200)) is not None


def test_a_holder_that_asks_again_gets_it_again(ports: Ports) -> None:
    """That is how it learns of a nudge, and how a lost answer is mended."""
    first = taken(ports)
    again = ports.partitions.acquire(NOON, 0, "p1", after(1), after(90))
    assert again is not None
    assert again.token >= first.token
    assert again.expires_at == after(90)


def test_renewing_holds_it_longer(ports: Ports) -> None:
    renewed = ports.partitions.renew(taken(ports), after(120))
    assert renewed is not None
    assert renewed.expires_at == after(120)
    assert ports.partitions.acquire(NOON, 0, "p2", after(119), after(180)) is None


def test_what_was_given_back_is_free(ports: Ports) -> None:
    old = taken(ports)
    assert ports.partitions.release(old) is True
    new = ports.partitions.acquire(NOON, 0, "p2", after(1), UNTIL)
    assert new is not None
    assert new.token > old.token
    assert ports.partitions.renew(old, after(200)) is None


def test_a_nudge_makes_the_holder_look_again(world: World) -> None:
    buckets = world.ports.partitions
    lease = taken(world.ports)
    nudged = buckets.signal_new_timers(NOON, 0)
    assert nudged is not None
    assert nudged.signal_count > lease.signal_count
    assert nudged.token == lease.token
    assert buckets.renew(lease, after(120)) is None
    assert buckets.release(lease) is False
    assert buckets.mark_done(lease) is False
    seen = buckets.acquire(NOON, 0, "p1", NOON, UNTIL)
    assert seen is not None
    assert seen.signal_count == nudged.signal_count
    assert buckets.release(seen) is True


def test_every_nudge_counts(world: World) -> None:
    buckets = world.ports.partitions
    taken(world.ports)
    first, second = buckets.signal_new_timers(NOON, 0), buckets.signal_new_timers(NOON, 0)
    assert first is not None
    assert second is not None
    assert buckets.renew(first, after(120)) is None
    assert buckets.renew(second, after(120)) is not None


def test_a_nudge_where_nobody_holds_it_finds_nobody(world: World) -> None:
    buckets = world.ports.partitions
    assert buckets.signal_new_timers(NOON, 0) is None
    lease = taken(world.ports)
    assert buckets.signal_new_timers(NOON, 1) is None
    assert buckets.release(lease)
    assert buckets.signal_new_timers(NOON, 0) is None


def test_a_nudge_of_a_lease_that_ended_finds_nobody(world: World) -> None:
    taken(world.ports)
    world.clock.set(UNTIL)
    assert world.ports.partitions.signal_new_timers(NOON, 0) is None


def test_a_minute_that_is_done_is_never_handed_out_again(ports: Ports) -> None:
    lease = taken(ports)
    assert ports.partitions.is_done(NOON, 0) is False
    assert ports.partitions.mark_done(lease) is True
    assert ports.partitions.is_done(NOON, 0) is True
    assert ports.partitions.is_done(NOON, 1) is False
    assert ports.partitions.is_done(NOON + MINUTE, 0) is False
    assert ports.partitions.acquire(NOON, 0, "p1", after(999), after(1_060)) is None
    assert ports.partitions.signal_new_timers(NOON, 0) is None


def test_what_is_done_cannot_be_given_back_or_renewed(ports: Ports) -> None:
    lease = taken(ports)
    ports.partitions.mark_done(lease)
    assert ports.partitions.renew(lease, after(120)) is None
    ports.partitions.release(lease)
    assert ports.partitions.is_done(NOON, 0) is True


def test_the_watermark_moves_by_who_read_it_last(ports: Ports) -> None:
    buckets = ports.partitions
    assert buckets.watermark() is None
    assert buckets.advance_watermark(NOON, NOON + MINUTE) is False
    assert buckets.advance_watermark(None, NOON) is True
    assert buckets.advance_watermark(None, NOON + MINUTE) is False
    assert buckets.advance_watermark(NOON - MINUTE, NOON + MINUTE) is False
    assert buckets.watermark() == NOON
    assert buckets.advance_watermark(NOON, NOON + MINUTE) is True
    assert buckets.watermark() == NOON + MINUTE


def test_the_shard_count_only_grows(ports: Ports) -> None:
    assert max(1, ports.partitions.shard_count()) == 1
    ports.partitions.raise_shard_count(8)
    ports.partitions.raise_shard_count(4)
    assert ports.partitions.shard_count() == 8
    ports.partitions.raise_shard_count(64)
    assert ports.partitions.shard_count() == 64


def closed(ports: Ports, bucket: datetime) -> None:
    lease = ports.partitions.acquire(bucket, 0, "p1", bucket, bucket + MINUTE)
    assert lease is not None
    assert ports.partitions.mark_done(lease)


def test_minutes_that_a_clock_ahead_has_closed_are_opened_again(ports: Ports) -> None:
    buckets = ports.partitions
    buckets.advance_watermark(None, NOON)
    for number in range(4):
        closed(ports, NOON + number * MINUTE)
    buckets.advance_watermark(NOON, NOON + 4 * MINUTE)
    assert buckets.reopen(NOON + 2 * MINUTE, NOON + MINUTE) is True
    assert buckets.watermark() == NOON + MINUTE
    assert [buckets.is_done(NOON + number * MINUTE, 0) for number in range(4)] == [
        *(True, False, False, False)
    ]
    assert buckets.acquire(NOON + 2 * MINUTE, 0, "p2", NOON, after(500)) is not None


def test_minutes_that_are_over_stay_closed(ports: Ports) -> None:
    buckets = ports.partitions
    buckets.advance_watermark(None, NOON)
    assert buckets.reopen(NOON, NOON - MINUTE) is False
    closed(ports, NOON)
    buckets.advance_watermark(NOON, NOON + MINUTE)
    assert buckets.reopen(NOON + MINUTE, NOON - MINUTE) is False
    assert buckets.watermark() == NOON + MINUTE
    assert buckets.is_done(NOON, 0) is True


def test_what_was_opened_again_is_closed_again(ports: Ports) -> None:
    buckets = ports.partitions
    buckets.advance_watermark(None, NOON)
    closed(ports, NOON)
    buckets.advance_watermark(NOON, NOON + MINUTE)
    assert buckets.reopen(NOON, NOON) is True
    assert buckets.reopen(NOON, NOON) is False, "there are none now"
    closed(ports, NOON)
    assert buckets.is_done(NOON, 0) is True
