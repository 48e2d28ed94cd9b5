"""The times of a schedule. Previews and evaluations use the same function, `next_after`."""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec

from punctual.domain.errors import FieldError
from punctual.domain.schedules.cron.clock_changes import clock_changes, drift
from punctual.domain.schedules.cron.expression import At, Calendar, Rate, parse_cron
from punctual.domain.schedules.cron.instants import local_instant, next_instant
from punctual.domain.schedules.describe import describe
from punctual.domain.schedules.timezones import (
    EPOCH,
    HORIZON,
    SECOND,
    end_of_days,
    local_day,
    transitions,
    zone,
)
from punctual.domain.schedules.values import Cron, Every, Once, Schedule

__all__ = [
    "Cron",
    "Every",
    "Once",
    "Preview",
    "Schedule",
    "after_completion",
    "check",
    "describe",
    "first_time",
    "is_excluded",
    "is_occurrence",
    "last_before",
    "next_after",
    "occurrences",
    "preview",
]

GAPS = ("NEXT", "SKIP", "SHIFT")
FOLDS = ("FIRST", "SECOND", "BOTH")
MAX_INTERVAL = 31_622_400
_TICK = timedelta(microseconds=1)
# Not every zone can represent local times before this.
_EARLIEST = (datetime(2, 1, 1, tzinfo=UTC) - EPOCH) // SECOND


class Preview(NamedTuple):
    """The next times, each in UTC and in the schedule's zone, a description and warnings."""

    times: tuple[tuple[datetime, datetime], ...]
    description: str
    warnings: tuple[str, ...]


def next_after(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first time after `after`, in UTC, or None if there is none before 2200.

    For an `Every` that counts from completion, it returns the first time. After that time it
    returns `after` plus the interval.
    """
    if isinstance(schedule, Once):
        return schedule.at if schedule.at > after else None
    if isinstance(schedule, Every):
        base = first_step(schedule, schedule.seconds)
        if schedule.from_completion and after >= base:
            return after_completion(schedule, after)
        return _step_after(schedule, base, schedule.seconds, after)
    if schedule.start_at is not None and after < schedule.start_at:
        after = schedule.start_at - _TICK
    meaning = parse_cron(schedule.expression)
    if isinstance(meaning, Calendar):
        return _calendar_after(schedule, meaning, after)
    if isinstance(meaning, Rate):
        base = first_step(schedule, meaning.seconds)
        return _step_after(schedule, base, meaning.seconds, after)
    at = _at_time(schedule, meaning)
    if at is None or at <= after or _is_over(schedule, at) or _skip_day(schedule, at) is not None:
        return None
    return at


def first_time(schedule: Schedule) -> datetime | None:
    """Return the first time of a new schedule."""
    if isinstance(schedule, Every):
        base = first_step(schedule, schedule.seconds)
        return _step_after(schedule, base, schedule.seconds, base - _TICK)
    return next_after(schedule, getattr(schedule, "anchor_at", None) or EPOCH)


def after_completion(schedule: Every, ended_at: datetime) -> datetime | None:
    """Return the time that follows the end of a run.

    If the date of that time is excluded, the time is whole intervals later.
    """
    base = _one_later(ended_at, schedule.seconds)
    if schedule.start_at is not None:
        base = max(base, schedule.start_at)
    return _step_after(schedule, base, schedule.seconds, base - _TICK)


def occurrences(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield every time after `after`, up to and including `until`."""
    at = next_after(schedule, after)
    while at is not None and at <= until:
        yield at
        at = next_after(schedule, at)


def last_before(schedule: Schedule, before: datetime) -> datetime | None:
    """Return the last time before `before`, or None if there is none since 1970.

    The search steps back in growing strides until a stride contains a time. Then it halves the
    rest. The number of times in between does not matter. An `Every` that counts from completion
    is not supported.
    """
    if isinstance(schedule, Once):
        return schedule.at if schedule.at < before else None
    low = high = min(before, HORIZON)
    stride, found = SECOND, None
    while found is None and low >= EPOCH:
        high, low = low, max(low - stride, EPOCH - _TICK)
        found = _between(schedule, low, before)
        stride *= 4
    if found is None:
        return None
    while high - found > SECOND:
        middle = found + (high - found) / 2
        later = _between(schedule, middle, before)
        if later is None:
            high = middle
        else:
            found = later
    # Two times are at least a second apart, so at most one more can follow.
    return _between(schedule, found, before) or found


def _between(schedule: Schedule, after: datetime, before: datetime) -> datetime | None:
    at = next_after(schedule, after)
    return at if at is not None and at < before else None


def is_occurrence(schedule: Schedule, at: datetime) -> bool:
    """Return whether the schedule fires at `at`.

    Without a run, an `Every` that counts from completion has only its first time.
    """
    return at.year > 1 and next_after(schedule, at - _TICK) == at


def is_excluded(schedule: Schedule, at: datetime) -> bool:
    """Return whether only `exclude` stops the schedule from firing at `at`."""
    if isinstance(schedule, Once) or not schedule.exclude:
        return False
    bare = msgspec.structs.replace(schedule, exclude=())
    return not is_occurrence(schedule, at) and is_occurrence(bare, at)


def preview(schedule: Schedule, after: datetime, count: int) -> Preview:
    """Return the next `count` times, a description, and the clock changes that affect them."""
    times = tuple(islice(occurrences(schedule, after, datetime.max.replace(tzinfo=UTC)), count))
    name = "UTC" if isinstance(schedule, Once) else schedule.timezone
    info = zone(name)
    warnings = _warnings(schedule, after, times)
    return Preview(tuple((t, t.astimezone(info)) for t in times), describe(schedule), warnings)


def check(schedule: Schedule) -> tuple[FieldError, ...]:
    """Return all errors of a schedule, by the field names of the API."""
    if isinstance(schedule, Once):
        return ()
    errors = []
    try:
        zone(schedule.timezone)
    except ValueError as error:
        errors.append(FieldError("timezone", str(error)))
    if isinstance(schedule, Cron):
        errors.extend(_check_cron(schedule, zone_is_known=not errors))
    elif not 1 <= schedule.seconds <= MAX_INTERVAL:
        errors.append(FieldError("interval_seconds", f"must be from 1 to {MAX_INTERVAL}"))
    if schedule.start_at and schedule.start_at < EPOCH:
        errors.append(FieldError("start_time", "must be in 1970 or later"))
    if schedule.start_at and schedule.end_at and schedule.end_at <= schedule.start_at:
        errors.append(FieldError("end_time", "must be after start_time"))
    return tuple(errors)


def _check_cron(schedule: Cron, zone_is_known: bool) -> Iterator[FieldError]:
    if schedule.gap not in GAPS:
        yield FieldError("dst_gap", f"must be one of {', '.join(GAPS)}")
    if schedule.fold not in FOLDS:
        yield FieldError("dst_fold", f"must be one of {', '.join(FOLDS)}")
    try:
        meaning = parse_cron(schedule.expression)
    except ValueError as error:
        yield FieldError("cron_expression", str(error))
        return
    if not isinstance(meaning, At):
        return
    if schedule.fold == "BOTH":
        yield FieldError("dst_fold", "at(…) fires once: choose FIRST or SECOND")
    if zone_is_known and _at_time(schedule, meaning) is None:
        text = (
            f"it can never fire: clocks in {schedule.timezone} skip that time; "
            f"choose another, or a dst_gap of NEXT or SHIFT"
        )
        yield FieldError("cron_expression", text)


def first_step(schedule: Every | Cron, seconds: int) -> datetime:
    """Return the first time of an interval or a rate(…) of `seconds`."""
    return schedule.start_at or _one_later(schedule.anchor_at or EPOCH, seconds)


def _one_later(anchor_at: datetime, seconds: int) -> datetime:
    return min(anchor_at, HORIZON) + timedelta(seconds=seconds)


def _calendar_after(schedule: Cron, calendar: Calendar, after: datetime) -> datetime | None:
    table = transitions(schedule.timezone)
    gap, fold = schedule.gap, schedule.fold
    while after < HORIZON:
        second = max((after - EPOCH) // SECOND + 1, _EARLIEST)
        found = next_instant(calendar, table, gap, fold, second)
        if found is None:
            return None
        at = EPOCH + timedelta(seconds=found)
        if _is_over(schedule, at):
            return None
        until = _skip_day(schedule, at)
        if until is None:
            return at
        after = until - _TICK
    return None


def _step_after(
    schedule: Every | Cron, base: datetime, seconds: int, after: datetime
) -> datetime | None:
    """Return the first of base, base + seconds, base + 2 × seconds, … after `after`."""
    step = timedelta(seconds=seconds)
    while True:
        steps = max(0, (after - base) // step + 1)
        if after >= HORIZON or base >= HORIZON or _is_over(schedule, base + steps * step):
            return None
        at = base + steps * step
        until = _skip_day(schedule, at)
        if until is None:
            return at
        after = until - _TICK


def _at_time(schedule: Cron, meaning: At) -> datetime | None:
    table = transitions(schedule.timezone)
    second = local_instant(meaning.local, table, schedule.gap, schedule.fold)
    return None if second is None else EPOCH + timedelta(seconds=second)


def _is_over(schedule: Every | Cron, at: datetime) -> bool:
    return at >= HORIZON or (schedule.end_at is not None and at >= schedule.end_at)


def _skip_day(schedule: Every | Cron, at: datetime) -> datetime | None:
    """Return where the search continues if the date of `at` is excluded, else None.

    Excluded dates in a row are one step.
    """
    if not schedule.exclude:
        return None
    day = date.fromordinal(local_day(schedule.timezone, at))
    days = _days_in_a_row(schedule.exclude, day)
    return end_of_days(schedule.timezone, at, days) if days else None


def _days_in_a_row(exclude: tuple[date, ...], day: date) -> int:
    """Return how many dates from `day` on are excluded without a gap. `exclude` is sorted."""
    first = bisect_left(exclude, day)
    if first == len(exclude) or exclude[first] != day:
        return 0
    low, high = first, len(exclude)
    while high - low > 1:
        middle = (low + high) // 2
        if (exclude[middle] - day).days == middle - first:
            low = middle
        else:
            high = middle
    return low - first + 1


def _warnings(schedule: Schedule, after: datetime, times: tuple[datetime, ...]) -> tuple[str, ...]:
    if isinstance(schedule, Once) or not times:
        return ()
    name, until = schedule.timezone, times[-1]
    if isinstance(schedule, Cron):
        meaning = parse_cron(schedule.expression)
        if isinstance(meaning, Calendar):
            return clock_changes(meaning, name, schedule.gap, schedule.fold, after, until)
        if isinstance(meaning, At):
            return ()
        return drift(meaning.seconds, name, times[0], until)
    return drift(schedule.seconds, name, times[0], until)
