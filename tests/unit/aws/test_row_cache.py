"""The cache of rows that hold a process's timers has a bound."""

from datetime import timedelta

from punctual.aws.dynamodb.timers.rows import TimerRowCache, build_rows
from punctual.domain.identifiers import bucket_of
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON, an_id

AT = NOON + timedelta(seconds=30)
TIMERS = [Timer(bucket_of(AT), 0, AT, "acme", an_id(n), 1) for n in range(10)]


def cached_rows(cache: TimerRowCache) -> int:
    deletion = cache.plan_delete(TIMERS)
    return len(deletion.whole_rows) + len(deletion.members_by_row)


def test_row_cache_drops_older_rows_of_timers_that_are_put_again() -> None:
    cache = TimerRowCache(100)
    for number in range(1_000):
        cache.add(build_rows(TIMERS, f"{number:012x}"))
        assert 1 <= cached_rows(cache) <= 2 * 100 // len(TIMERS)
    assert not cache.plan_delete(TIMERS).unknown


def test_forgotten_timers_make_room_in_the_row_cache() -> None:
    cache = TimerRowCache(100)
    (first_row,) = build_rows(TIMERS, "0" * 12)
    cache.add([first_row])
    others = [timer._replace(job_id=an_id(100 + n)) for n, timer in enumerate(TIMERS)]
    for number in range(1_000):
        cache.add(build_rows(others, f"{number:012x}"))
        cache.forget(others, cache.plan_delete(others))
    assert cache.plan_delete(TIMERS).whole_rows == [first_row.key]
