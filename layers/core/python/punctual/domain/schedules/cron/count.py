"""Count the times of a cron expression in a range, without a walk over them.

Between two clock changes local and real time run alike. The code counts each stretch by whole
days and by the bits of the fields. Times that a clock change moves are counted one by one.
"""

from bisect import bisect_right
from datetime import date

from punctual.domain.schedules.cron.expression import (
    EPOCH_ORDINAL,
    LAST_SCHEDULED_YEAR,
    LAST_SEARCHED_SECOND,
    SECONDS_PER_DAY,
    Calendar,
    month_length,
)
from punctual.domain.schedules.timezones import Transitions


def count_instants(
    calendar: Calendar, zone: Transitions, gap: str, fold: str, first: int, end: int
) -> int:
    """Return how often the calendar fires in [first, end), in seconds since 1970.

    The rules are those of `next_instant`.
    """
    end = min(end, LAST_SEARCHED_SECOND)
    changes = zone.changes
    index = bisect_right(changes, first)
    total = 0
    while first < end:
        until = min(end, changes[index]) if index < len(changes) else end
        total += _count_stretch(calendar, zone, gap, fold, index, first, until)
        first = until
        index += 1
    return total


def _count_stretch(
    calendar: Calendar,
    zone: Transitions,
    gap: str,
    fold: str,
    index: int,
    first: int,
    end: int,
) -> int:
    """Return the count in [first, end), which lies in the stretch before the change `index`."""
    changes, offsets = zone
    offset = offsets[index]
    low, high = first + offset, end + offset
    moved_count = 0
    if calendar.is_fixed and index:
        change, old_offset = changes[index - 1], offsets[index - 1]
        if offset > old_offset:
            moved_count = _count_moved(calendar, gap, change, old_offset, offset, first, end)
        elif fold == "FIRST":
            low = max(low, change + old_offset)
    if calendar.is_fixed and fold == "SECOND" and index < len(changes):
        next_offset = offsets[index + 1]
        if next_offset < offset:
            high = min(high, changes[index] + next_offset)
    return moved_count + count_local(calendar, low, high)


def _count_moved(
    calendar: Calendar, gap: str, change: int, old_offset: int, offset: int, first: int, end: int
) -> int:
    """Return how many times move out of the gap at `change` and fire in [first, end).

    A moved time that meets a regular time does not count.
    """
    gap_end = change + offset
    if gap == "NEXT":
        is_in_range = first <= change < end and calendar.next_local(change + old_offset) < gap_end
        return int(is_in_range and calendar.next_local(gap_end) != gap_end)
    if gap != "SHIFT":
        return 0
    count = 0
    local = calendar.next_local(max(first + old_offset, change + old_offset))
    while local < min(gap_end, end + old_offset):
        shifted_local = local - old_offset + offset
        count += calendar.next_local(shifted_local) != shifted_local
        local = calendar.next_local(local + 1)
    return count


def count_local(calendar: Calendar, low: int, high: int) -> int:
    """Return the number of matching local times in [low, high)."""
    if low >= high:
        return 0
    first_day, first_second = divmod(low, SECONDS_PER_DAY)
    last_day, last_second = divmod(high, SECONDS_PER_DAY)
    times_per_day = _times_before(calendar, SECONDS_PER_DAY)
    count = times_per_day * _count_days(calendar, first_day, last_day)
    if _count_days(calendar, first_day, first_day + 1):
        count -= _times_before(calendar, first_second)
    if last_second and _count_days(calendar, last_day, last_day + 1):
        count += _times_before(calendar, last_second)
    return count


def _times_before(calendar: Calendar, second_of_day: int) -> int:
    """Return the number of matching times of a day before `second_of_day`."""
    hour, second_of_hour = divmod(second_of_day, 3_600)
    minute, second = divmod(second_of_hour, 60)
    minutes, seconds = calendar.minutes.bit_count(), calendar.seconds.bit_count()
    count = _count_bits_below(calendar.hours, hour) * minutes * seconds
    if calendar.hours >> hour & 1:
        count += _count_bits_below(calendar.minutes, minute) * seconds
        if calendar.minutes >> minute & 1:
            count += _count_bits_below(calendar.seconds, second)
    return count


def _count_bits_below(bits: int, number: int) -> int:
    return (bits & (1 << number) - 1).bit_count()


def _count_days(calendar: Calendar, first: int, end: int) -> int:
    """Return the number of matching days in [first, end), in days since 1970."""
    count = 0
    while first < end:
        day = date.fromordinal(first + EPOCH_ORDINAL)
        if day.year > LAST_SCHEDULED_YEAR:
            break
        length = month_length(day.year, day.month)
        last = min(length, day.day + end - first - 1)
        if calendar.months >> day.month & 1 and calendar.has_year(day.year):
            weekday = (first + EPOCH_ORDINAL - day.day + 1) % 7
            days = calendar.days_by_shape[weekday * 4 + length - 28]
            count += (days >> day.day & (1 << last - day.day + 1) - 1).bit_count()
        first += last - day.day + 1
    return count
