"""A difference of two schedules equals that of two previews, across both clock changes."""

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule, preview
from punctual.domain.schedules.timezones import zone
from punctual.engine.queries.schedules.schedule_diff import (
    MovedTime,
    PlannedTimes,
    ScheduleDiff,
    diff_schedules,
)
from punctual.engine.queries.slices import finish
from tests.support.examples import examples

PAIRS = 2_000
MAX_TIMES_PER_DAY = 50  # of the schedules below
# The day before the clocks go forward, and the day before they go back.
SPRING, AUTUMN = datetime(2027, 3, 27, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)
ZONES = st.sampled_from(["Europe/Berlin", "UTC", "America/New_York", "Australia/Lord_Howe"])
EXPRESSIONS = st.sampled_from(
    [
        "30 2 * * *",
        "30 3 * * *",
        "0 2 * * *",
        "0 3 * * *",
        "15 0,1,2,3 * * *",
        "*/20 1-3 * * *",
        "0 */2 * * *",
        "*/45 * * * *",
        "0 9 * * MON-FRI",
        "0 9 1,15 * *",
        "59 23 * * *",
        "rate(7 hours)",
        "cron(30 2 * * ? *)",
        "at(2027-03-28T02:30:00)",
    ]
)


@st.composite
def plans(draw: st.DrawFn, start: datetime) -> PlannedTimes:
    zone, max_runs = draw(ZONES), draw(st.none() | st.integers(1, 40))
    exclude = tuple(
        sorted(draw(st.sets(st.integers(0, 9).map(lambda n: date(2027, 3, 24 + n % 8)))))
    )
    moments = st.none() | st.integers(-3, 9).map(lambda days: start + timedelta(days=days))
    first, end = draw(moments), draw(moments)
    kind = draw(st.sampled_from(["cron", "cron", "cron", "every", "once"]))
    if kind == "once":
        hours = draw(st.integers(1, 240))
        return PlannedTimes(Once(start + timedelta(hours=hours)))
    if kind == "every":
        seconds = draw(st.sampled_from([1_800, 3_600, 5_400, 86_400, 90_000]))
        is_from_completion = draw(st.booleans())
        every = Every(seconds, start, is_from_completion, first, end, exclude, zone)
        return PlannedTimes(every, max_runs)
    gap = draw(st.sampled_from(["", "NEXT", "SKIP", "SHIFT"]))
    fold = draw(st.sampled_from(["", "FIRST", "SECOND", "BOTH"]))
    cron = Cron(draw(EXPRESSIONS), zone, gap, fold, first, end, exclude, start)
    return PlannedTimes(cron, max_runs)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[datetime, int, PlannedTimes, PlannedTimes]:
    start = draw(st.sampled_from([SPRING, AUTUMN])) - timedelta(hours=draw(st.integers(0, 60)))
    before = draw(plans(start))
    after = draw(plans(start))
    return start, draw(st.integers(2, 9)), before, after


def range_end(start: datetime, days: int, before: PlannedTimes, after: PlannedTimes) -> datetime:
    """Return the end of the last date, in the zone of the new schedule."""
    schedule = before.schedule if isinstance(after.schedule, Once) else after.schedule
    zone_info = zone("UTC" if isinstance(schedule, Once) else schedule.timezone)
    last_date = start.astimezone(zone_info).date() + timedelta(days=days + 1)
    return datetime.combine(last_date, time(), zone_info).astimezone(UTC)


def previewed(planned: PlannedTimes, start: datetime, end: datetime) -> list[tuple[datetime, date]]:
    """Return the times of a preview in the range, each with its local date."""
    days = (end - start).days + 1
    limit = MAX_TIMES_PER_DAY * days if planned.max_times is None else planned.max_times
    times = preview(planned.schedule, start, limit).times
    assert planned.max_times is not None or len(times) < limit or times[-1][0] >= end
    return [(utc, local.date()) for utc, local in times if utc < end]


def diff_of_previews(
    start: datetime, end: datetime, before: PlannedTimes, after: PlannedTimes
) -> ScheduleDiff:
    old, new = previewed(before, start, end), previewed(after, start, end)
    old_times, new_times = {utc for utc, _ in old}, {utc for utc, _ in new}
    lost: dict[date, list[datetime]] = defaultdict(list)
    gained: dict[date, list[datetime]] = defaultdict(list)
    for utc, day in old:
        if utc not in new_times:
            lost[day].append(utc)
    for utc, day in new:
        if utc not in old_times:
            gained[day].append(utc)
    paired = [day for day in lost if len(lost[day]) == len(gained.get(day, ()))]
    moved = [
        MovedTime(*times) for day in paired for times in zip(lost[day], gained[day], strict=True)
    ]
    added = [utc for day, times in gained.items() if day not in paired for utc in times]
    removed = [utc for day, times in lost.items() if day not in paired for utc in times]
    return ScheduleDiff(
        end, sorted(added), sorted(removed), sorted(moved), sorted(old_times & new_times), ()
    )


@settings(max_examples=examples(PAIRS), deadline=None)
@given(pairs())
def test_diff_equals_that_of_two_previews(
    drawn: tuple[datetime, int, PlannedTimes, PlannedTimes],
) -> None:
    start, days, before, after = drawn
    diff = finish(diff_schedules(before, after, start, days))
    expected = diff_of_previews(start, range_end(start, days, before, after), before, after)
    assert diff._replace(warnings=()) == expected


def shown_warnings(schedule: Schedule, start: datetime, count: int) -> set[str]:
    return set(preview(schedule, start, count).warnings) if count else set()


@settings(max_examples=examples(200), deadline=None)
@given(pairs())
def test_diff_has_the_warnings_of_both_previews(
    drawn: tuple[datetime, int, PlannedTimes, PlannedTimes],
) -> None:
    start, days, before, after = drawn
    diff = finish(diff_schedules(before, after, start, days))
    expected: set[str] = set()
    for planned in (before, after):
        count = len(previewed(planned, start, diff.end))
        expected |= shown_warnings(planned.schedule, start, count)
    plain = {text.removeprefix("Before: ").removeprefix("After: ") for text in diff.warnings}
    assert {text for text in plain if "clocks in" in text} == expected
