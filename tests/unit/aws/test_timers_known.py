"""What a process remembers of the rows that hold its timers has an end."""

from datetime import timedelta

from punctual.aws.dynamodb.timers.row_cache import TimerRowCache
from punctual.aws.dynamodb.timers.rows import build_rows
from punctual.domain.identifiers import bucket_of
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON, an_id

AT = NOON + timedelta(seconds=30)
TIMERS = [Timer(bucket_of(AT), 0, AT, "acme", an_id(n), 1) for n in range(10)]


def rows_known(known: TimerRowCache) -> int:
    leaving = known.plan_delete(TIMERS)
    return len(leaving.whole_rows) + len(leaving.members_by_row)


def test_timers_that_are_put_again_and_again_are_not_remembered_in_all_their_rows() -> None:
    known = TimerRowCache(100)
    for number in range(1_000):
        known.add(build_rows(TIMERS, f"{number:012x}"))
        assert 1 <= rows_known(known) <= 2 * 100 // len(TIMERS)
    assert not known.plan_delete(TIMERS).unknown


def test_what_is_gone_makes_room() -> None:
    known = TimerRowCache(100)
    (kept,) = build_rows(TIMERS, "0" * 12)
    known.add([kept])
    others = [timer._replace(job_id=an_id(100 + n)) for n, timer in enumerate(TIMERS)]
    for number in range(1_000):
        known.add(build_rows(others, f"{number:012x}"))
        known.forget(others, known.plan_delete(others))
    assert known.plan_delete(TIMERS).whole_rows == [kept.key]
