"""Counted starts equal those of a walk over each job's times."""

from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules import start_counts
from punctual.domain.schedules.schedule import Cron, Every, Once, after_completion, occurrences
from punctual.domain.schedules.start_counts import MINUTE, PlannedStarts, StartCounts
from punctual.domain.utc import MICROSECOND
from tests.support.examples import examples

# In this range clocks in Berlin go back.
START = datetime(2026, 10, 24, 20, tzinfo=UTC)
JITTERS = st.sampled_from([0, 0, 1, 500, 59_999, 60_000, 61_250, 3_599_000]).map(
    lambda ms: timedelta(milliseconds=ms)
)
EXCLUDED = st.sets(st.sampled_from([date(2026, 10, day) for day in (23, 24, 25, 27)]))
EXPRESSIONS = st.sampled_from(
    [
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "15,45 */3 * * *",
        "*/20 * * * * *",
        "* * * * * *",
        "5 0 22 * * *",
        "0 9 * * MON",
        "cron(0/10 1 ? * * *)",
        "rate(7 minutes)",
        "rate(1 day)",
        "at(2026-10-25T02:30:00)",
    ]
)
SECONDS = st.sampled_from([1, 7, 20, 45, 60, 90, 100, 300, 3_600, 3_607, 90_000])


@st.composite
def planned_starts(draw: st.DrawFn) -> PlannedStarts | None:
    zone, exclude = draw(st.sampled_from(["UTC", "Europe/Berlin"])), tuple(sorted(draw(EXCLUDED)))
    jitter, max_times = draw(JITTERS), draw(st.none() | st.integers(0, 400))
    now = START + timedelta(
        seconds=draw(st.integers(0, 5_000)), microseconds=draw(st.integers(0, 9))
    )
    end = draw(st.none() | st.integers(0, 60).map(lambda hours: START + timedelta(hours=hours)))
    kind = draw(st.sampled_from(["cron", "cron", "every", "completion", "once"]))
    if kind == "once":
        return PlannedStarts(Once(now), now, jitter)
    schedule: Cron | Every
    if kind == "cron":
        schedule = Cron(draw(EXPRESSIONS), zone, "", "", None, end, exclude, now)
    else:
        schedule = Every(draw(SECONDS), now, kind == "completion", None, end, exclude, zone)
    after = max(START - jitter, now - timedelta(hours=1)) - MICROSECOND
    first_at = next(occurrences(schedule, after, START + timedelta(days=9)), None)
    return None if first_at is None else PlannedStarts(schedule, first_at, jitter, max_times)


def walked(planned: PlannedStarts, end: datetime) -> list[datetime]:
    schedule, first_at, jitter, max_times = planned
    if isinstance(schedule, Once) or max_times == 0:
        times = [first_at] * (max_times != 0)
    elif isinstance(schedule, Every) and schedule.from_completion:
        times = []
        at: datetime | None = first_at
        while at is not None and at + jitter < end and len(times) != max_times:
            times.append(at)
            at = after_completion(schedule, at + jitter)
    else:
        every_time = occurrences(schedule, first_at - MICROSECOND, end)
        times = list(islice(every_time, max_times))
    return [at + jitter for at in times if START <= at + jitter < end]


def counted(jobs: list[PlannedStarts], minutes: int) -> list[int]:
    counts = StartCounts(START, minutes)
    for planned in jobs:
        for _ in counts.add(planned):
            pass
    for _ in counts.finish():
        pass
    return list(counts.minutes)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(planned_starts(), max_size=6), st.sampled_from([60, 300, 1_440, 2_000]))
def test_counts_equal_those_of_a_walk(jobs: list[PlannedStarts | None], minutes: int) -> None:
    planned = [job for job in jobs if job is not None]
    expected = [0] * minutes
    for job in planned:
        for at in walked(job, START + minutes * MINUTE):
            expected[(at - START) // MINUTE] += 1
    assert counted(planned, minutes) == expected


def hourly(minute: int) -> PlannedStarts:
    first_at = START + timedelta(minutes=minute)
    return PlannedStarts(Cron(f"{minute} * * * *"), first_at)


def test_expressions_beyond_the_kept_times_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [hourly(number % 60) for number in range(300)]
    expected = counted(jobs, 1_440)
    assert sum(expected) == 300 * 24
    monkeypatch.setattr(start_counts, "MAX_SHARED_TIMES", 100)
    assert counted(jobs, 1_440) == expected


def test_intervals_beyond_the_kept_periods_are_counted_too() -> None:
    jobs = [
        PlannedStarts(Every(60 * minutes, START), START + timedelta(seconds=1))
        for minutes in range(1, 400)
    ]
    expected = [0] * 1_440
    for minutes in range(1, 400):
        for minute in range(0, 1_440, minutes):
            expected[minute] += 1
    assert counted(jobs, 1_440) == expected
