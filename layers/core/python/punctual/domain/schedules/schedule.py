"""The times of a schedule. Previews and evaluations use the same function, `next_after`."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec

from punctual.domain.errors import FieldError
from punctual.domain.schedules.cron.clock_changes import clock_changes, local_time_drift
from punctual.domain.schedules.cron.expression import At, Calendar, Rate, parse_cron
from punctual.domain.schedules.cron.instants import local_instant, next_instant
from punctual.domain.schedules.describe import describe
from punctual.domain.schedules.timezones import HORIZON, end_of_days, local_day, transitions, zone
from punctual.domain.schedules.values import Cron, Every, Once, Schedule
from punctual.domain.utc import EPOCH, MICROSECOND, SECOND

__all__ = [
    "Cron",
    "Every",
    "Once",
    "Preview",
    "Schedule",
    "after_completion",
    "clock_warnings",
    "describe",
    "find_schedule_errors",
    "first_time",
    "is_excluded",
    "is_occurrence",
    "last_before",
    "next_after",
    "occurrences",
    "preview",
]

DST_GAP_RULES = ("NEXT", "SKIP", "SHIFT")
DST_FOLD_RULES = ("FIRST", "SECOND", "BOTH")
MAX_INTERVAL_SECONDS = 31_622_400
# Not every zone can represent local times before this.
_EARLIEST_SECOND = (datetime(2, 1, 1, tzinfo=UTC) - EPOCH) // SECOND


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
        first_at = first_step(schedule, schedule.seconds)
        if schedule.from_completion and after >= first_at:
            return after_completion(schedule, after)
        return _step_after(schedule, first_at, schedule.seconds, after)
    if schedule.start_at is not None and after < schedule.start_at:
        after = schedule.start_at - MICROSECOND
    parsed = parse_cron(schedule.expression)
    if isinstance(parsed, Calendar):
        return _calendar_after(schedule, parsed, after)
    if isinstance(parsed, Rate):
        first_at = first_step(schedule, parsed.seconds)
        return _step_after(schedule, first_at, parsed.seconds, after)
    at = _at_time(schedule, parsed)
    if (
        at is None
        or at <= after
        or _is_over(schedule, at)
        or _excluded_until(schedule, at) is not None
    ):
        return None
    return at


def first_time(schedule: Schedule) -> datetime | None:
    """Return the first time of a new schedule."""
    if isinstance(schedule, Every):
        first_at = first_step(schedule, schedule.seconds)
        return _step_after(schedule, first_at, schedule.seconds, first_at - MICROSECOND)
    return next_after(schedule, getattr(schedule, "anchor_at", None) or EPOCH)


def after_completion(schedule: Every, ended_at: datetime) -> datetime | None:
    """Return the time that follows the end of a run.

    If the date of that time is excluded, the time is whole intervals later.
    """
    next_at = _one_interval_later(ended_at, schedule.seconds)
    if schedule.start_at is not None:
        next_at = max(next_at, schedule.start_at)
    return _step_after(schedule, next_at, schedule.seconds, next_at - MICROSECOND)


def occurrences(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield every time after `after`, up to and including `until`."""
    at = next_after(schedule, after)
    while at is not None and at <= until:
        yield at
        at = next_after(schedule, at)


def last_before(schedule: Schedule, before: datetime) -> datetime | None:
    """Return the last time before `before`, or None if there is none since 1970.

    The search steps back in growing strides until a stride contains a time. Then it halves that
    stride. The number of times in between does not matter. An `Every` that counts from completion
    is not supported.
    """
    if isinstance(schedule, Once):
        return schedule.at if schedule.at < before else None
    low_at = high_at = min(before, HORIZON)
    stride, found_at = SECOND, None
    while found_at is None and low_at >= EPOCH:
        high_at, low_at = low_at, max(low_at - stride, EPOCH - MICROSECOND)
        found_at = _first_between(schedule, low_at, before)
        stride *= 4
    if found_at is None:
        return None
    while high_at - found_at > SECOND:
        middle_at = found_at + (high_at - found_at) / 2
        later_at = _first_between(schedule, middle_at, before)
        if later_at is None:
            high_at = middle_at
        else:
            found_at = later_at
    # Two times are at least a second apart, so at most one more can follow.
    return _first_between(schedule, found_at, before) or found_at


def _first_between(schedule: Schedule, after: datetime, before: datetime) -> datetime | None:
    at = next_after(schedule, after)
    return at if at is not None and at < before else None


def is_occurrence(schedule: Schedule, at: datetime) -> bool:
    """Return whether the schedule fires at `at`.

    Without a run, an `Every` that counts from completion has only its first time.
    """
    return at.year > 1 and next_after(schedule, at - MICROSECOND) == at


def is_excluded(schedule: Schedule, at: datetime) -> bool:
    """Return whether only `exclude` stops the schedule from firing at `at`."""
    if isinstance(schedule, Once) or not schedule.exclude:
        return False
    without_exclusions = msgspec.structs.replace(schedule, exclude=())
    return not is_occurrence(schedule, at) and is_occurrence(without_exclusions, at)


def preview(schedule: Schedule, after: datetime, count: int) -> Preview:
    """Return the next `count` times, a description, and the clock changes that affect them."""
    times = tuple(islice(occurrences(schedule, after, datetime.max.replace(tzinfo=UTC)), count))
    zone_name = "UTC" if isinstance(schedule, Once) else schedule.timezone
    zone_info = zone(zone_name)
    warnings = clock_warnings(schedule, after, times)
    return Preview(
        tuple((time, time.astimezone(zone_info)) for time in times), describe(schedule), warnings
    )


def find_schedule_errors(schedule: Schedule) -> tuple[FieldError, ...]:
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
    elif not 1 <= schedule.seconds <= MAX_INTERVAL_SECONDS:
        errors.append(FieldError("interval_seconds", f"must be from 1 to {MAX_INTERVAL_SECONDS}"))
    if schedule.start_at and schedule.start_at < EPOCH:
        errors.append(FieldError("start_time", "must be in 1970 or later"))
    if schedule.start_at and schedule.end_at and schedule.end_at <= schedule.start_at:
        errors.append(FieldError("end_time", "must be after start_time"))
    return tuple(errors)


def _check_cron(schedule: Cron, zone_is_known: bool) -> Iterator[FieldError]:
    if schedule.gap not in DST_GAP_RULES:
        yield FieldError("dst_gap", f"must be one of {', '.join(DST_GAP_RULES)}")
    if schedule.fold not in DST_FOLD_RULES:
        yield FieldError("dst_fold", f"must be one of {', '.join(DST_FOLD_RULES)}")
    try:
        parsed = parse_cron(schedule.expression)
    except ValueError as error:
        yield FieldError("cron_expression", str(error))
        return
    if not isinstance(parsed, At):
        return
    if schedule.fold == "BOTH":
        yield FieldError("dst_fold", "at(…) fires once: choose FIRST or SECOND")
    if zone_is_known and _at_time(schedule, parsed) is None:
        text = (
            f"it can never fire: clocks in {schedule.timezone} skip that time; "
            f"choose another, or a dst_gap of NEXT or SHIFT"
        )
        yield FieldError("cron_expression", text)


def first_step(schedule: Every | Cron, seconds: int) -> datetime:
    """Return the first time of an interval or a rate(…) of `seconds`."""
    return schedule.start_at or _one_interval_later(schedule.anchor_at or EPOCH, seconds)


def _one_interval_later(anchor_at: datetime, seconds: int) -> datetime:
    return min(anchor_at, HORIZON) + timedelta(seconds=seconds)


def _calendar_after(schedule: Cron, calendar: Calendar, after: datetime) -> datetime | None:
    offset_changes = transitions(schedule.timezone)
    gap, fold = schedule.gap, schedule.fold
    while after < HORIZON:
        second = max((after - EPOCH) // SECOND + 1, _EARLIEST_SECOND)
        instant = next_instant(calendar, offset_changes, gap, fold, second)
        if instant is None:
            return None
        at = EPOCH + timedelta(seconds=instant)
        if _is_over(schedule, at):
            return None
        resume_at = _excluded_until(schedule, at)
        if resume_at is None:
            return at
        after = resume_at - MICROSECOND
    return None


def _step_after(
    schedule: Every | Cron, first_at: datetime, seconds: int, after: datetime
) -> datetime | None:
    """Return the first time after `after` that lies whole intervals after `first_at`."""
    step = timedelta(seconds=seconds)
    while True:
        step_count = max(0, (after - first_at) // step + 1)
        if (
            after >= HORIZON
            or first_at >= HORIZON
            or _is_over(schedule, first_at + step_count * step)
        ):
            return None
        at = first_at + step_count * step
        resume_at = _excluded_until(schedule, at)
        if resume_at is None:
            return at
        after = resume_at - MICROSECOND


def _at_time(schedule: Cron, parsed: At) -> datetime | None:
    offset_changes = transitions(schedule.timezone)
    second = local_instant(parsed.local, offset_changes, schedule.gap, schedule.fold)
    return None if second is None else EPOCH + timedelta(seconds=second)


def _is_over(schedule: Every | Cron, at: datetime) -> bool:
    return at >= HORIZON or (schedule.end_at is not None and at >= schedule.end_at)


def _excluded_until(schedule: Every | Cron, at: datetime) -> datetime | None:
    """Return where the search continues if the date of `at` is excluded, else None.

    Excluded dates in a row are one step.
    """
    if not schedule.exclude:
        return None
    day = date.fromordinal(local_day(schedule.timezone, at))
    days = _excluded_days(schedule.exclude, day)
    return end_of_days(schedule.timezone, at, days) if days else None


def _excluded_days(exclude: tuple[date, ...], day: date) -> int:
    """Return how many dates from `day` on are excluded without a gap. `exclude` is sorted."""
    first_index = bisect_left(exclude, day)
    if first_index == len(exclude) or exclude[first_index] != day:
        return 0
    low, high = first_index, len(exclude)
    while high - low > 1:
        middle = (low + high) // 2
        if (exclude[middle] - day).days == middle - first_index:
            low = middle
        else:
            high = middle
    return low - first_index + 1


def clock_warnings(
    schedule: Schedule, after: datetime, times: Sequence[datetime]
) -> tuple[str, ...]:
    """Return one sentence for each clock change between `after` and the last of the times."""
    if isinstance(schedule, Once) or not times:
        return ()
    zone_name, until = schedule.timezone, times[-1]
    if isinstance(schedule, Cron):
        parsed = parse_cron(schedule.expression)
        if isinstance(parsed, Calendar):
            return clock_changes(parsed, zone_name, schedule.gap, schedule.fold, after, until)
        if isinstance(parsed, At):
            return ()
        return local_time_drift(parsed.seconds, zone_name, times[0], until)
    return local_time_drift(schedule.seconds, zone_name, times[0], until)
