"""Timers: read by time in the bucket and shard under which they are filed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON, a_timer, after, an_id
from tests.support.ports import Ports

FOREVER = datetime.max.replace(tzinfo=UTC)
MICRO = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
SHARED = 19  # timers at most in a row, so a page may have that many more


def in_order(timers: Sequence[Timer]) -> list[Timer]:
    return sorted(timers, key=lambda timer: timer.sort_key)


def due(ports: Ports, until: datetime = FOREVER, shard: int = 0) -> list[Timer]:
    return in_order(ports.timers.due(NOON, shard, until, None, 1_000).timers)


def pages(ports: Ports, limit: int, until: datetime = FOREVER) -> list[Sequence[Timer]]:
    """Return all pages, and check the size and order of each."""
    all_pages: list[Sequence[Timer]] = []
    cursor = None
    while not all_pages or cursor is not None:
        page, cursor, _ = ports.timers.due(NOON, 0, until, cursor, limit)
        assert len(page) <= limit + SHARED
        assert page or cursor is None
        assert len(set(page)) == len(page)
        all_pages.append(page)
    times = [timer.at for page in all_pages for timer in page]
    assert times == sorted(times)
    return all_pages


def read_all(ports: Ports, limit: int, until: datetime = FOREVER) -> list[Timer]:
    return in_order(list({timer for page in pages(ports, limit, until) for timer in page}))


def test_timer_keeps_its_microseconds(ports: Ports) -> None:
    timers = [a_timer(after(1.000001)), a_timer(after(59.999999), version=2**39)]
    ports.timers.put(timers)
    assert due(ports) == timers


def test_timer_put_twice_is_stored_once(ports: Ports) -> None:
    timer = a_timer()
    ports.timers.put([timer])
    ports.timers.put([timer, timer])
    assert due(ports) == [timer]


def test_timer_put_again_with_others_is_read_once_and_deleted(ports: Ports) -> None:
    timer, other = a_timer(), a_timer(job_id=an_id(2))
    ports.timers.put([timer])
    ports.timers.put([timer, other])
    ports.timers.put([other, timer])
    assert due(ports) == [timer, other]
    ports.timers.delete([timer])
    assert due(ports) == [other]
    ports.timers.delete([other])
    assert due(ports) == []


def test_timers_are_ordered_by_time(ports: Ports) -> None:
    expected = [
        a_timer(after(1), tenant="b"),
        a_timer(after(1) + MICRO, tenant="a"),
        a_timer(after(2), an_id(1), 9),
        a_timer(after(2), an_id(1), 10),
        a_timer(after(2), an_id(2), 1),
        a_timer(after(2), an_id(1), 1, tenant="acme#"),
    ]
    ports.timers.put(expected[::-1])
    assert due(ports) == in_order(expected) == expected
    assert [timer.at for page in pages(ports, 100) for timer in page] == [t.at for t in expected]


def test_timer_is_due_at_exactly_its_time(ports: Ports) -> None:
    timers = [a_timer(after(1.000001), an_id(n)) for n in range(3)]
    ports.timers.put(timers)
    assert due(ports, timers[0].at - MICRO) == []
    assert due(ports, timers[0].at) == timers


def test_late_timer_is_found_in_its_bucket(ports: Ports) -> None:
    late = a_timer(NOON - timedelta(days=3), bucket=NOON)
    ports.timers.put([late, a_timer(after(1))])
    assert due(ports, NOON) == [late]


def test_buckets_and_shards_are_separate(ports: Ports) -> None:
    here = a_timer(after(1))
    elsewhere = [a_timer(after(61)), a_timer(after(1), shard=1), a_timer(after(1), shard=10)]
    ports.timers.put([here, *elsewhere])
    assert due(ports) == [here]
    assert list(ports.timers.due(NOON + MINUTE, 0, FOREVER, None, 9).timers) == elsewhere[:1]
    assert due(ports, shard=1) == elsewhere[1:2]
    assert due(ports, shard=10) == elsewhere[2:]


@pytest.mark.parametrize("together", [True, False])
def test_delete_removes_exactly_the_named_timers(ports: Ports, together: bool) -> None:
    deleted = a_timer(after(1))
    near = [
        deleted._replace(version=2),
        deleted._replace(job_id=an_id(2)),
        deleted._replace(tenant="acme#"),
        deleted._replace(at=deleted.at + MICRO),
        deleted._replace(shard=1),
    ]
    for batch in [[deleted, *near]] if together else [[timer] for timer in (deleted, *near)]:
        ports.timers.put(batch)
    ports.timers.delete([deleted])
    assert set(due(ports)) == set(near[:4])
    assert due(ports, shard=1) == near[4:]


def test_delete_of_a_missing_timer_succeeds(ports: Ports) -> None:
    remaining = a_timer()
    ports.timers.put([remaining])
    ports.timers.delete([a_timer(version=2), a_timer(after(61))])
    ports.timers.delete([a_timer(version=2)])
    assert due(ports) == [remaining]


def test_deleted_timer_may_be_put_again(ports: Ports) -> None:
    timers = [a_timer(job_id=an_id(n)) for n in range(3)]
    ports.timers.put(timers)
    ports.timers.delete(timers[:2])
    assert due(ports) == timers[2:]
    ports.timers.put(timers[:2])
    assert due(ports) == timers
    ports.timers.delete(timers)
    assert due(ports) == []
    ports.timers.put(timers)
    assert due(ports) == timers


def test_empty_batches_do_nothing(ports: Ports) -> None:
    ports.timers.put([])
    ports.timers.delete([])
    assert due(ports) == []
    assert ports.timers.find_existing([]) == frozenset()
    assert ports.timers.due(NOON, 0, FOREVER, None, 1)[:2] == ([], None)


@pytest.mark.parametrize("limit", [1, 7, 100, 500])
@pytest.mark.parametrize("together", [1, 13, 130])
def test_pages_are_complete(ports: Ports, limit: int, together: int) -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(130)]
    for start in range(0, len(timers), together):
        ports.timers.put(timers[start : start + together])
    assert read_all(ports, limit) == in_order(timers)


def test_pages_stop_at_the_given_time(ports: Ports) -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(50)]
    ports.timers.put(timers)
    assert read_all(ports, 10, after(3)) == in_order(
        [timer for timer in timers if timer.at <= after(3)]
    )


@pytest.mark.parametrize("distinct_times", [1, 4, 50])
def test_timers_deleted_between_pages_hide_no_others(ports: Ports, distinct_times: int) -> None:
    timers = [a_timer(after(1 + n % distinct_times), an_id(n)) for n in range(50)]
    ports.timers.put(timers)
    timers_read: set[Timer] = set()
    cursor, unread = None, True
    while unread:
        page, cursor, _ = ports.timers.due(NOON, 0, FOREVER, cursor, 9)
        timers_read.update(page)
        ports.timers.delete(page)
        ports.timers.put([a_timer(after(0), an_id(1_000 + len(timers_read)))])
        unread = cursor is not None
    assert timers_read == set(timers)


def test_timer_put_after_the_cursor_is_found(ports: Ports) -> None:
    timers = [a_timer(after(n), an_id(n)) for n in range(0, 20, 2)]
    ports.timers.put(timers)
    first, cursor, _ = ports.timers.due(NOON, 0, FOREVER, None, 5)
    late = a_timer(after(15), an_id(15))
    ports.timers.put([late])
    rest = ports.timers.due(NOON, 0, FOREVER, cursor, 100).timers
    assert in_order(list({*first, *rest})) == in_order([*timers, late])


def test_large_batches_are_put_and_deleted_completely(ports: Ports) -> None:
    timers = [a_timer(after(n // 130), an_id(n)) for n in range(260)]
    ports.timers.put(timers)
    ports.timers.delete(timers[::2])
    assert due(ports) == timers[1::2]
    ports.timers.delete(timers)
    assert due(ports) == []


@pytest.mark.parametrize("tenant", ["a#b", "日本🕰", "עברית", "a|1", "#", "%", "a b", ""])
def test_timer_of_any_tenant_name_is_stored(ports: Ports, tenant: str) -> None:
    timers = [a_timer(tenant=tenant), a_timer(tenant=tenant, job_id=an_id(2)), a_timer()]
    ports.timers.put(timers)
    assert due(ports) == in_order(timers)
    ports.timers.delete(timers[:2])
    assert due(ports) == [a_timer()]


def test_find_existing_ignores_the_version(ports: Ports) -> None:
    shared = [a_timer(after(1), an_id(n), version=7) for n in range(45)]
    alone = [a_timer(after(2), an_id(n), version=n) for n in range(1, 9)]
    ports.timers.put(shared)
    for timer in alone:
        ports.timers.put([timer])
    asked_timers = [timer._replace(version=0) for timer in (*shared, *alone)]
    assert ports.timers.find_existing(asked_timers) == frozenset(asked_timers)
    ports.timers.delete([*shared[:20], alone[3]])
    assert ports.timers.find_existing(asked_timers) == frozenset(
        [*asked_timers[20:48], *asked_timers[49:]]
    )


def test_find_existing_compares_all_other_fields(ports: Ports) -> None:
    timer = a_timer(after(1), an_id(2))
    ports.timers.put([timer, a_timer(after(1), an_id(1)), a_timer(after(1), an_id(9))])
    near = [
        timer._replace(at=timer.at + MICRO),
        timer._replace(shard=1),
        timer._replace(bucket=NOON - MINUTE),
        timer._replace(tenant="acme#"),
        timer._replace(tenant=""),
        timer._replace(job_id=an_id(3)),
        timer._replace(job_id=timer.job_id[:-1]),
        timer._replace(job_id=timer.job_id + "0"),
    ]
    assert ports.timers.find_existing([*near, timer]) == {timer}
