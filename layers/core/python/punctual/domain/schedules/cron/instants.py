"""Convert the local times of a cron expression to the instants at which it fires."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

from punctual.domain.schedules.cron.expression import (
    LAST_SEARCHED_SECOND,
    SECONDS_PER_DAY,
    Calendar,
)
from punctual.domain.schedules.timezones import Transitions, transitions
from punctual.domain.schedules.values import Schedule
from punctual.domain.utc import EPOCH, SECOND

# Two offsets of one zone never differ by more.
_MAX_OFFSET_DIFFERENCE = 2 * SECONDS_PER_DAY


def next_instant(
    calendar: Calendar, zone: Transitions, gap: str, fold: str, second: int
) -> int | None:
    """Return the first instant not before `second`, in seconds since 1970, or None.

    1. A stretch between two clock changes has one offset, so local and real time run alike in it.
    2. Some fixed times come twice, at the end of one stretch and the start of the next. The code
       skips the copy that `fold` does not select.
    3. A fixed time in the gap before a stretch moves into the stretch, as `gap` says.
    4. If a stretch has no time left, the search continues in the next stretch, or near the next
       local match.
    """
    changes, offsets = zone
    is_fixed = calendar.is_fixed
    index = bisect_right(changes, second)
    while True:
        offset = offsets[index]
        start = second + offset
        moved_instant = None
        if is_fixed and index:
            change, old_offset = changes[index - 1], offsets[index - 1]
            if offset > old_offset:
                moved_instant = _next_from_gap(calendar, gap, second, change, old_offset, offset)
            elif fold == "FIRST":
                start = max(start, change + old_offset)
        local = calendar.next_local(start)
        instant = local - offset
        if index == len(changes):
            end = limit = LAST_SEARCHED_SECOND
            next_offset = offset
        else:
            end = limit = changes[index]
            next_offset = offsets[index + 1]
            if is_fixed and fold == "SECOND" and next_offset < offset:
                limit = end - offset + next_offset
        if moved_instant is not None and moved_instant < instant:
            return moved_instant
        if instant < limit:
            return instant
        if end >= LAST_SEARCHED_SECOND:
            return None
        second = end
        # Do not jump if the clock is set back: local times of this stretch then come again.
        if start <= end + next_offset:
            second = max(end, instant - _MAX_OFFSET_DIFFERENCE)
        index = bisect_right(changes, second, index)


def local_instant(local: int, zone: Transitions, gap: str, fold: str) -> int | None:
    """Return when a clock in the zone shows `local`, or None if `gap` is SKIP and it never does."""
    changes, offsets = zone
    index = bisect_right(changes, local - _MAX_OFFSET_DIFFERENCE)
    last_index = bisect_right(changes, local + _MAX_OFFSET_DIFFERENCE)
    instants = []
    while index <= last_index:
        instant = local - offsets[index]
        if bisect_right(changes, instant) == index:
            instants.append(instant)
        elif index and changes[index - 1] + offsets[index - 1] <= local < (
            changes[index - 1] + offsets[index]
        ):
            moved_instants = {"NEXT": changes[index - 1], "SHIFT": local - offsets[index - 1]}
            return moved_instants.get(gap)
        index += 1
    return instants[-1] if fold == "SECOND" else instants[0]


def local_to_instant(schedule: Schedule | None, local: datetime) -> datetime:
    """Return the moment at which a clock in the schedule's zone shows `local`.

    Of a time that comes twice, it returns the one that fires. A time in a gap moves as the
    schedule says; SKIP acts as NEXT here.
    """
    zone_name = getattr(schedule, "timezone", "UTC")
    gap, fold = getattr(schedule, "gap", "NEXT"), getattr(schedule, "fold", "FIRST")
    local_second = (local.replace(tzinfo=UTC, microsecond=0) - EPOCH) // SECOND
    second = local_instant(
        local_second, transitions(zone_name), "NEXT" if gap == "SKIP" else gap, fold
    )
    assert second is not None  # only SKIP returns None
    return EPOCH + timedelta(seconds=second, microseconds=local.microsecond)


def _next_from_gap(
    calendar: Calendar, gap: str, second: int, change: int, old_offset: int, offset: int
) -> int | None:
    """Return the first instant not before `second` that `gap` moves out of the gap at `change`."""
    end = change + offset
    if gap == "NEXT" and second == change and calendar.next_local(change + old_offset) < end:
        return change
    if gap == "SHIFT" and second + old_offset < end:
        local = calendar.next_local(second + old_offset)
        if local < end:
            return local - old_offset
    return None
