"""Counted times and nth times equal those of a walk."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.count import count_times, nth_time
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule, next_after, occurrences
from tests.support.examples import examples

TICK = timedelta(microseconds=1)
EXPRESSIONS = st.sampled_from(
    [
        "*/7 * * * *",
        "30 0,1,2,3 * * *",
        "0-59/10 0-5 * * *",
        "*/20 */5 1-5 * * MON-FRI",
        "0 12 L * *",
        "15 2 31W,29 * *",
        "0 0 * * 5#2",
        "5 0 29 2 *",
        "7/13 59 23 31 12 *",
        "* 30 2 * * *",
        "cron(0/30 1 ? * MON-FRI *)",
        "cron(30 2 ? * * 2011-2012)",
        "rate(7 minutes)",
        "at(2011-12-30T00:30:00)",
    ]
)
# Zones and days on which clocks skip a day, move by half an hour or two hours, or at midnight.
ZONES_AND_DAYS = st.sampled_from(
    [
        ("UTC", date(2026, 3, 1)),
        ("Europe/Berlin", date(2026, 3, 28)),
        ("Europe/Berlin", date(2026, 10, 24)),
        ("Australia/Lord_Howe", date(2026, 4, 4)),
        ("Australia/Lord_Howe", date(2026, 10, 3)),
        ("Antarctica/Troll", date(2026, 3, 28)),
        ("Antarctica/Troll", date(2026, 10, 24)),
        ("Pacific/Apia", date(2011, 12, 29)),
        ("Africa/Casablanca", date(2026, 2, 14)),
        ("America/Nuuk", date(2024, 3, 30)),
        ("America/Havana", date(2026, 10, 31)),
    ]
)


def excluded_dates(first: date) -> st.SearchStrategy[tuple[date, ...]]:
    days = st.sets(st.integers(-2, 6), max_size=4)
    return days.map(
        lambda offsets: tuple(first + timedelta(days=offset) for offset in sorted(offsets))
    )


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, datetime]:
    zone, day = draw(ZONES_AND_DAYS)
    noon = datetime(day.year, day.month, day.day, tzinfo=UTC)
    moments = st.none() | st.integers(-86_400 * 3_000_000, 86_400 * 3_000_000).map(
        lambda offset: noon + timedelta(microseconds=offset)
    )
    exclude, start, end = draw(excluded_dates(day)), draw(moments), draw(moments)
    if draw(st.booleans()):
        seconds = draw(st.integers(60, 100_000))
        return Every(seconds, noon, False, start, end, exclude, zone), noon
    gap, fold = (draw(st.sampled_from(["", "NEXT", "SKIP", "SHIFT"])), draw(st.sampled_from("FSB")))
    fold = {"F": "FIRST", "S": "SECOND", "B": "BOTH"}[fold]
    return Cron(draw(EXPRESSIONS), zone, gap, fold, start, end, exclude, noon), noon


@settings(max_examples=examples(400), deadline=None)
@given(schedules(), st.integers(-48, 96), st.integers(0, 72 * 3_600), st.integers(1, 60))
def test_count_equals_that_of_a_walk(
    drawn: tuple[Schedule, datetime], hours: int, seconds: int, number: int
) -> None:
    schedule, noon = drawn
    after = noon + timedelta(hours=hours)
    until = after + timedelta(seconds=seconds)
    times = list(occurrences(schedule, after, until))
    assert count_times(schedule, after, until) == len(times)
    expected = times[number - 1] if number <= len(times) else None
    assert expected is None or nth_time(schedule, after, number) == expected
    if times:
        assert count_times(schedule, after, times[-1] - TICK) == len(times) - 1
        assert count_times(schedule, times[0], until) == len(times) - 1


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_count_over_years_equals_that_of_a_walk(zone: str) -> None:
    schedule = Cron("0 9 * * 1-5", timezone=zone, exclude=(date(2026, 12, 24), date(2026, 12, 25)))
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)
    times = list(occurrences(schedule, start, end))
    assert count_times(schedule, start, end) == len(times)
    assert [nth_time(schedule, start, number + 1) for number in (0, 200, len(times) - 1)] == [
        *(times[number] for number in (0, 200, -1))
    ]


def test_count_over_all_years_of_a_schedule_of_each_second() -> None:
    schedule = Cron("* * * * * *", timezone="Europe/Berlin")
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    seconds = (end - start) // timedelta(seconds=1) - 3_600  # the year 2200 begins earlier there
    assert count_times(schedule, start, end) == seconds - 1
    assert nth_time(schedule, start, 10_000_000) == start + timedelta(seconds=10_000_000)
    assert nth_time(schedule, start, seconds) is None
    assert nth_time(schedule, start, 0) is None


def test_count_of_once_is_one() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert count_times(Once(at), at - TICK, at) == 1
    assert count_times(Once(at), at, at + timedelta(days=1)) == 0
    assert nth_time(Once(at), at - TICK, 1) == at == next_after(Once(at), at - TICK)
    assert nth_time(Once(at), at - TICK, 2) is None
