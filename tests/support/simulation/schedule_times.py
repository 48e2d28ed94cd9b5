"""Independent times of schedules: arithmetic for intervals, trial and error for cron.

The invariants compare runs with these times. The code is slow, supports little of cron, and shares
nothing with the product.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule

SECOND = timedelta(seconds=1)
MAX_STEPS = 100_000


def times(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """Return every time in (after, until], by the fields of the schedule alone."""
    return [at for at in _candidates(schedule, after, until) if is_time(schedule, at)]


def is_time(schedule: Schedule, at: datetime) -> bool:
    if isinstance(schedule, Once):
        return at == schedule.at
    if schedule.end_at is not None and at >= schedule.end_at:
        return False
    if schedule.start_at is not None and at < schedule.start_at:
        return False
    local = at.astimezone(ZoneInfo(schedule.timezone))
    if local.date() in schedule.exclude:
        return False
    if isinstance(schedule, Every):
        first = first_of(schedule)
        return at >= first and (at - first) % timedelta(seconds=schedule.seconds) == timedelta(0)
    return _matches(schedule, local)


def first_of(schedule: Every) -> datetime:
    if schedule.start_at is not None:
        return schedule.start_at
    return schedule.anchor_at + timedelta(seconds=schedule.seconds)


def next_time(schedule: Schedule, after: datetime, within: timedelta) -> datetime | None:
    """Return the first time after `after`, or None if there is none within the span `within`."""
    for at in _candidates(schedule, after, after + within):
        if is_time(schedule, at):
            return at
    return None


def _candidates(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    if isinstance(schedule, Once):
        if after < schedule.at <= until:
            yield schedule.at
        return
    if isinstance(schedule, Every):
        at, step = first_of(schedule), timedelta(seconds=schedule.seconds)
        at += max(0, (after - at) // step) * step
    else:
        at, step = after.astimezone(UTC).replace(microsecond=0), SECOND
        if not _has_seconds(schedule.expression):
            at, step = at.replace(second=0), timedelta(minutes=1)
    for _ in range(MAX_STEPS):
        if at > until:
            return
        if at > after:
            yield at
        at += step
    raise AssertionError(f"{schedule}: too many times from {after} to {until}")


def _has_seconds(expression: str) -> bool:
    return len(expression.split()) == 6


def _matches(schedule: Cron, local: datetime) -> bool:
    fields = schedule.expression.split()
    if not _has_seconds(schedule.expression):
        fields = ["0", *fields]
    assert fields[3:] == ["*", "*", "*"], "stories use no fields for days"
    shown = (local.second, local.minute, local.hour)
    return local.microsecond == 0 and all(
        value in _values(field, size)
        for field, value, size in zip(fields, shown, (60, 60, 24), strict=False)
    )


@cache
def _values(field: str, size: int) -> frozenset[int]:
    """Return the values of a list of `*`, `*/n`, `a-b` and numbers."""
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = 0 if span == "*" else int(low)
        last = size - 1 if span == "*" else int(high or low)
        values.update(range(first, last + 1, int(step or 1)))
    return frozenset(values)
