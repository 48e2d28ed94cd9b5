"""Intervals in closed form equal those of step-by-step counting."""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.schedule import (
    Cron,
    Every,
    after_completion,
    first_time,
    is_excluded,
    is_occurrence,
    last_before,
    next_after,
    occurrences,
)
from tests.golden.oracle import pinned_zone
from tests.support.examples import examples

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
MOMENTS = st.integers(-10 * 86_400_000_000, 10 * 86_400_000_000).map(
    lambda offset: NOON + timedelta(microseconds=offset)
)
DATES = st.lists(st.integers(0, 20), max_size=6).map(
    lambda days: tuple(date(2026, 3, 17) + timedelta(days=offset) for offset in sorted(set(days)))
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Chatham", "America/Nuuk"])


def times_step_by_step(
    base: datetime, step: timedelta, zone: str, exclude: tuple[date, ...], end: datetime | None
) -> list[datetime]:
    """Return the times of forty days, counted one by one."""
    at, times = base, []
    while at < NOON + timedelta(days=40) and (end is None or at < end):
        if at.astimezone(pinned_zone(zone)).date() not in exclude:
            times.append(at)
        at += step
    return times


@settings(max_examples=examples(150), deadline=None)
@given(
    st.integers(900, 400_000),
    MOMENTS,
    MOMENTS,
    st.none() | MOMENTS,
    st.none() | MOMENTS,
    DATES,
    ZONES,
    st.booleans(),
)
def test_interval_fires_at_the_counted_times(
    seconds: int,
    anchor: datetime,
    after: datetime,
    start: datetime | None,
    end: datetime | None,
    exclude: tuple[date, ...],
    zone: str,
    as_rate: bool,
) -> None:
    if as_rate:
        seconds = max(2, seconds // 60) * 60
        schedule: Every | Cron = Cron(
            f"rate({seconds // 60} minutes)",
            timezone=zone,
            anchor_at=anchor,
            start_at=start,
            end_at=end,
            exclude=exclude,
        )
    else:
        schedule = Every(
            seconds, anchor, start_at=start, end_at=end, exclude=exclude, timezone=zone
        )
    step = timedelta(seconds=seconds)
    base = start or anchor + step
    times = times_step_by_step(base, step, zone, exclude, end)
    later = [at for at in times if at > after]
    assert next_after(schedule, after) == (later[0] if later else None)
    until = NOON + timedelta(days=30)
    assert list(occurrences(schedule, after, until)) == [at for at in later if at <= until]
    earlier = [at for at in times if at < after]
    assert last_before(schedule, after) == (earlier[-1] if earlier else None)
    unfiltered = times_step_by_step(base, step, zone, (), end)
    for at in unfiltered[:20]:
        assert is_occurrence(schedule, at) is (at in times)
        assert is_excluded(schedule, at) is (at not in times)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 400_000), MOMENTS, MOMENTS, st.none() | MOMENTS, DATES, ZONES)
def test_interval_from_completion_never_fires_too_early(
    seconds: int,
    anchor: datetime,
    ended: datetime,
    start: datetime | None,
    exclude: tuple[date, ...],
    zone: str,
) -> None:
    schedule = Every(
        seconds, anchor, from_completion=True, start_at=start, exclude=exclude, timezone=zone
    )
    next_at = after_completion(schedule, ended)
    first = first_time(schedule)
    assert next_at is not None
    assert first is not None
    step = timedelta(seconds=seconds)
    assert next_at >= ended + step
    assert start is None or next_at >= start
    assert next_at.astimezone(pinned_zone(zone)).date() not in exclude
    if not exclude:
        assert next_at == max(ended + step, start or ended)
        assert first == (start or anchor + step)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from(["*/30 * * * *", "30 0,2 * * *", "0 */6 * * *", "cron(30 2 * * ? *)"]),
    ZONES,
    MOMENTS,
    st.none() | MOMENTS,
    st.none() | MOMENTS,
    DATES,
)
def test_window_and_excluded_dates_only_remove_times(
    expression: str,
    zone: str,
    after: datetime,
    start: datetime | None,
    end: datetime | None,
    exclude: tuple[date, ...],
) -> None:
    until = after + timedelta(days=8)
    schedule = Cron(expression, timezone=zone, start_at=start, end_at=end, exclude=exclude)
    times_of_a_month = list(occurrences(schedule, after - timedelta(days=31), after - TICK))
    if times_of_a_month:
        assert last_before(schedule, after) == times_of_a_month[-1]
    unfiltered = occurrences(Cron(expression, timezone=zone), after, until)
    expected = [
        at
        for at in unfiltered
        if (start is None or at >= start)
        and (end is None or at < end)
        and at.astimezone(pinned_zone(zone)).date() not in exclude
    ]
    assert list(occurrences(schedule, after, until)) == expected
