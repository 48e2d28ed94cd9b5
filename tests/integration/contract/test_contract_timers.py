"""Timers: each found once, in order, in the minute and shard it was filed under."""

from datetime import UTC, datetime, timedelta

import pytest

from punctual.engine.ports import Ports, Timer
from tests.builders import NOON, a_timer, after, an_id

FOREVER = datetime.max.replace(tzinfo=UTC)
MICRO = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


def due(ports: Ports, until: datetime = FOREVER, limit: int = 1_000) -> list[Timer]:
    return list(ports.timers.due(NOON, 0, until, None, limit))


def read_all(ports: Ports, limit: int, until: datetime = FOREVER) -> list[Timer]:
    found: list[Timer] = []
    while page := ports.timers.due(NOON, 0, until, found[-1] if found else None, limit):
        assert len(page) <= limit
        found += page
    return found


def test_a_timer_comes_back_to_the_microsecond(ports: Ports) -> None:
    timers = [a_timer(after(1.000001)), a_timer(after(59.999999), version=2**40)]
    ports.timers.put(timers)
    assert due(ports) == timers


def test_what_is_put_twice_stands_once(ports: Ports) -> None:
    timer = a_timer()
    ports.timers.put([timer])
    ports.timers.put([timer, timer])
    assert due(ports) == [timer]


def test_timers_come_by_moment_then_tenant_job_and_version(ports: Ports) -> None:
    wanted = [
        a_timer(after(1), tenant="b"),
        a_timer(after(1) + MICRO, tenant="a"),
        a_timer(after(2), an_id(1), 9),
        a_timer(after(2), an_id(1), 10),
        a_timer(after(2), an_id(2), 1),
        a_timer(after(2), an_id(1), 1, tenant="acme#"),
    ]
    ports.timers.put(wanted[::-1])
    assert due(ports) == sorted(wanted, key=lambda timer: timer.order) == wanted


def test_a_timer_is_due_at_its_very_moment(ports: Ports) -> None:
    timer = a_timer(after(1.000001))
    ports.timers.put([timer])
    assert due(ports, timer.at - MICRO) == []
    assert due(ports, timer.at) == [timer]


def test_a_late_timer_is_found_in_the_minute_it_was_filed_under(ports: Ports) -> None:
    late = a_timer(NOON - timedelta(days=3), bucket=NOON)
    ports.timers.put([late, a_timer(after(1))])
    assert due(ports, NOON) == [late]


def test_minutes_and_shards_are_apart(ports: Ports) -> None:
    here = a_timer(after(1))
    there = [a_timer(after(61)), a_timer(after(1), shard=1), a_timer(after(1), shard=10)]
    ports.timers.put([here, *there])
    assert due(ports) == [here]
    assert list(ports.timers.due(NOON + MINUTE, 0, FOREVER, None, 9)) == there[:1]
    assert list(ports.timers.due(NOON, 1, FOREVER, None, 9)) == there[1:2]
    assert list(ports.timers.due(NOON, 10, FOREVER, None, 9)) == there[2:]


def test_exactly_what_is_named_is_deleted(ports: Ports) -> None:
    gone = a_timer(after(1))
    near = [
        gone._replace(version=2),
        gone._replace(job_id=an_id(2)),
        gone._replace(tenant="acme#"),
        gone._replace(at=gone.at + MICRO),
        gone._replace(shard=1),
    ]
    ports.timers.put([gone, *near])
    ports.timers.delete([gone])
    assert set(due(ports)) == set(near[:4])
    assert list(ports.timers.due(NOON, 1, FOREVER, None, 9)) == near[4:]


def test_deleting_what_is_not_there_is_no_error(ports: Ports) -> None:
    kept = a_timer()
    ports.timers.put([kept])
    ports.timers.delete([a_timer(version=2), a_timer(after(61))])
    ports.timers.delete([a_timer(version=2)])
    assert due(ports) == [kept]


def test_a_timer_may_be_put_again_after_it_was_deleted(ports: Ports) -> None:
    timer = a_timer()
    ports.timers.put([timer])
    ports.timers.delete([timer])
    assert due(ports) == []
    ports.timers.put([timer])
    assert due(ports) == [timer]


def test_empty_batches_do_nothing(ports: Ports) -> None:
    ports.timers.put([])
    ports.timers.delete([])
    assert due(ports) == []


@pytest.mark.parametrize("limit", [1, 7, 100, 500])
def test_pages_are_complete_and_without_doubles(ports: Ports, limit: int) -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(130)]
    ports.timers.put(timers)
    assert read_all(ports, limit) == sorted(timers, key=lambda timer: timer.order)


def test_pages_stop_at_the_moment_asked_for(ports: Ports) -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(50)]
    ports.timers.put(timers)
    wanted = sorted((one for one in timers if one.at <= after(3)), key=lambda one: one.order)
    assert read_all(ports, 10, after(3)) == wanted


def test_what_is_handled_while_reading_hides_nothing(ports: Ports) -> None:
    timers = [a_timer(after(n), an_id(n)) for n in range(50)]
    ports.timers.put(timers)
    found: list[Timer] = []
    while page := ports.timers.due(NOON, 0, FOREVER, found[-1] if found else None, 9):
        found += page
        ports.timers.delete(page)
        ports.timers.put([a_timer(after(0), an_id(1_000 + len(found)))])
    assert found == timers


def test_what_is_put_behind_the_place_reached_is_found(ports: Ports) -> None:
    timers = [a_timer(after(n), an_id(n)) for n in range(0, 20, 2)]
    ports.timers.put(timers)
    first = list(ports.timers.due(NOON, 0, FOREVER, None, 5))
    late = a_timer(after(15), an_id(15))
    ports.timers.put([late])
    rest = ports.timers.due(NOON, 0, FOREVER, first[-1], 100)
    assert [*first, *rest] == sorted([*timers, late], key=lambda timer: timer.order)


def test_large_batches_are_put_and_deleted_whole(ports: Ports) -> None:
    timers = [a_timer(after(n / 10), an_id(n)) for n in range(260)]
    ports.timers.put(timers)
    ports.timers.delete(timers[::2])
    assert due(ports) == timers[1::2]


@pytest.mark.parametrize("tenant", ["a#b", "日本🕰", "עברית", "a|1", "#", "%", "a b"])
def test_any_tenant_comes_back_as_it_is(ports: Ports, tenant: str) -> None:
    timer = a_timer(tenant=tenant)
    ports.timers.put([timer, a_timer()])
    assert timer in due(ports)
    ports.timers.delete([timer])
    assert due(ports) == [a_timer()]
