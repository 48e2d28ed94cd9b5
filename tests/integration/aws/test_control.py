"""Control rows and blobs on AWS: partitions, receipts, and the cost of each call."""

from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest

from punctual.aws.dynamodb import keys
from punctual.engine.ports.rows import Receipt
from tests.support.aws.moto_adapter import BUCKET, Moto, moto
from tests.support.builders_jobs import NOON, after


@pytest.fixture
def aws() -> Iterator[Moto]:
    with moto(lambda: NOON) as aws:
        yield aws


def test_watermark_moves_only_from_the_value_that_was_read(aws: Moto) -> None:
    buckets = aws.ports.partitions
    assert buckets.watermark() is None
    assert not buckets.advance_watermark(NOON, after(60))
    assert buckets.advance_watermark(None, NOON)
    assert not buckets.advance_watermark(None, after(60))
    assert buckets.advance_watermark(NOON, after(60))
    assert not buckets.advance_watermark(NOON, after(120))
    assert buckets.watermark() == after(60)
    assert buckets.is_done(NOON, 3)
    assert not buckets.is_done(after(60), 3)


def test_shard_count_only_grows(aws: Moto) -> None:
    buckets = aws.ports.partitions
    assert buckets.shard_count() == 1
    for count, stands in ((4, 4), (2, 4), (64, 64), (64, 64)):
        buckets.raise_shard_count(count)
        assert buckets.shard_count() == stands


def test_partition_has_one_lease_at_a_time(aws: Moto) -> None:
    buckets = aws.ports.partitions
    first = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert first is not None
    assert (first.owner, first.token, first.signal_count, first.expires_at) == (
        "a",
        1,
        0,
        after(60),
    )
    assert buckets.acquire(NOON, 0, "b", after(59), after(120)) is None
    assert buckets.acquire(NOON, 1, "b", NOON, after(60)) is not None
    second = buckets.acquire(NOON, 0, "b", after(60), after(120))
    assert second is not None
    assert second.token == 2
    assert buckets.renew(first, after(300)) is None
    assert not buckets.release(first)
    assert not buckets.mark_done(first)
    assert buckets.renew(second, after(300)) == second._replace(expires_at=after(300))


def test_signal_prevents_release_of_older_lease(aws: Moto) -> None:
    buckets = aws.ports.partitions
    assert buckets.signal_new_timers(NOON, 0) is None
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    nudged = buckets.signal_new_timers(NOON, 0)
    assert nudged == lease._replace(signal_count=1)
    assert buckets.renew(lease, after(90)) is None
    assert not buckets.release(lease)
    assert nudged is not None
    assert buckets.release(nudged)
    assert buckets.signal_new_timers(NOON, 0) is None
    again = buckets.acquire(NOON, 0, "b", NOON, after(60))
    assert again == nudged._replace(owner="b", token=2)


def test_expired_lease_takes_no_signal(aws: Moto) -> None:
    aws.ports.partitions.acquire(NOON, 0, "a", after(-60), after(0))
    assert aws.ports.partitions.signal_new_timers(NOON, 0) is None


def test_done_partition_stays_done_for_a_week(aws: Moto) -> None:
    buckets = aws.ports.partitions
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    assert buckets.mark_done(lease)
    assert buckets.mark_done(lease)
    assert buckets.is_done(NOON, 0)
    assert not buckets.is_done(NOON, 1)
    assert buckets.acquire(NOON, 0, "b", after(600), after(660)) is None
    assert buckets.renew(lease, after(90)) is None
    (row,) = aws.rows("control")
    assert int(row[keys.TTL]["N"]) == (after(60) + timedelta(days=7)).timestamp()


def a_receipt(fingerprint: str, seconds: float = 60) -> Receipt:
    return Receipt(fingerprint, f"id-{fingerprint}", NOON, after(seconds))


def test_first_receipt_wins_until_it_expires(aws: Moto) -> None:
    claim = aws.ports.receipts.claim
    first, second, third = (a_receipt(name) for name in "abc")
    assert claim("t", [("k", first), ("k#", second), ("k", third)], NOON) == [first, second, first]
    assert claim("t", [("k", second)], after(59.999)) == [first]
    assert claim("T", [("k", third)], NOON) == [third]
    assert claim("t", [("k", second)], after(60)) == [second]
    assert claim("t", [], NOON) == []


def test_control_rows_cost_one_call_each(aws: Moto) -> None:
    buckets = aws.ports.partitions
    lease = buckets.acquire(NOON, 0, "a", NOON, after(60))
    assert lease is not None
    for work, spent in (
        (buckets.watermark, {"BatchGetItem": 1}),
        (lambda: buckets.advance_watermark(None, NOON), {"PutItem": 1}),
        (lambda: buckets.acquire(NOON, 1, "a", NOON, after(9)), {"UpdateItem": 1}),
        (lambda: buckets.renew(lease, after(90)), {"UpdateItem": 1}),
        (lambda: buckets.signal_new_timers(NOON, 0), {"UpdateItem": 1}),
        (lambda: buckets.release(lease), {"UpdateItem": 1}),
        (lambda: buckets.is_done(NOON, 0), {"BatchGetItem": 1}),
        (lambda: aws.ports.receipts.claim("t", [("k", a_receipt("a"))], NOON), {"PutItem": 1}),
    ):
        assert aws.spend(work) == spent


def test_blob_is_read_whole_and_in_ranges(aws: Moto) -> None:
    blobs = aws.ports.blobs
    name = "outputs/té#nant/j/r 1/7"
    assert blobs.get(name) is None
    assert blobs.get(name, 3) is None
    assert blobs.get(name, 3, 3) is None
    blobs.put(name, b"0123456789", "text/plain")
    assert blobs.get(name) == b"0123456789"
    assert blobs.get(name, 4) == b"456789"
    assert blobs.get(name, 4, 6) == b"45"
    assert blobs.get(name, 0, 2) == b"01"
    assert blobs.get(name, 8, 99) == b"89"
    assert blobs.get(name, 10) == b""
    assert blobs.get(name, 99, 100) == b""
    assert blobs.get(name, 5, 5) == b""
    blobs.put(name, b"new", "")
    assert blobs.get(name) == b"new"


def test_empty_blob_is_found(aws: Moto) -> None:
    aws.ports.blobs.put("a", b"", "text/plain")
    assert aws.ports.blobs.get("a") == b""
    assert aws.ports.blobs.get("a", 0, 0) == b""
    assert aws.ports.blobs.get("a", 0, 1) == b""


def test_large_blob_is_read_back(aws: Moto) -> None:
    data = Random(4).randbytes(2_000_000)
    aws.ports.blobs.put("a", data, "application/octet-stream")
    assert aws.ports.blobs.get("a") == data
    assert aws.ports.blobs.get("a", 1_999_990) == data[-10:]


def test_blobs_are_deleted_with_missing_ones_ignored(aws: Moto) -> None:
    blobs = aws.ports.blobs
    for name in ("a", "b", "c"):
        blobs.put(name, b"x", "text/plain")
    assert aws.spend(lambda: blobs.delete(["a", "b", "none"])) == {"DeleteObjects": 1}
    assert [blobs.get(name) for name in "abc"] == [None, None, b"x"]
    assert aws.spend(lambda: blobs.delete([])) == {}


def test_link_has_blob_name_type_and_expiry(aws: Moto) -> None:
    link = aws.ports.blobs.link("outputs/t/a b", "text/plain")
    assert link is not None
    assert BUCKET in link
    assert "outputs/t/a%20b" in link
    assert "response-content-type=text%2Fplain" in link
    assert "Expires" in link
