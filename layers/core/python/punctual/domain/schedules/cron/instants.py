"""Convert the local times of a cron expression to the instants at which it fires."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta

from punctual.domain.schedules.cron.expression import DAY, NEVER, Calendar
from punctual.domain.schedules.timezones import EPOCH, SECOND, Transitions, transitions
from punctual.domain.schedules.values import Schedule

# Two offsets of one zone never differ by more.
_SLACK = 2 * DAY
_END = NEVER - 5 * DAY


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
    rules = calendar.is_fixed
    index = bisect_right(changes, second)
    while True:
        offset = offsets[index]
        start = second + offset
        moved = None
        if rules and index:
            change, before = changes[index - 1], offsets[index - 1]
            if offset > before:
                moved = _from_gap(calendar, gap, second, change, before, offset)
            elif fold == "FIRST":
                start = max(start, change + before)
        local = calendar.next_local(start)
        instant = local - offset
        if index == len(changes):
            end = limit = _END
            following = offset
        else:
            end = limit = changes[index]
            following = offsets[index + 1]
            if rules and fold == "SECOND" and following < offset:
                limit = end - offset + following
        if moved is not None and moved < instant:
            return moved
        if instant < limit:
            return instant
        if end >= _END:
            return None
        second = end
        # Do not jump if the clock is set back: local times of this stretch then come again.
        if start <= end + following:
            second = max(end, instant - _SLACK)
        index = bisect_right(changes, second, index)


def local_instant(local: int, zone: Transitions, gap: str, fold: str) -> int | None:
    """Return when a clock in the zone shows `local`, or None if `gap` is SKIP and it never does."""
    changes, offsets = zone
    index = bisect_right(changes, local - _SLACK)
    last = bisect_right(changes, local + _SLACK)
    found = []
    while index <= last:
        instant = local - offsets[index]
        if bisect_right(changes, instant) == index:
            found.append(instant)
        elif index and changes[index - 1] + offsets[index - 1] <= local < (
            changes[index - 1] + offsets[index]
        ):
            moved = {"NEXT": changes[index - 1], "SHIFT": local - offsets[index - 1]}
            return moved.get(gap)
        index += 1
    return found[-1] if fold == "SECOND" else found[0]


def in_zone_of(schedule: Schedule | None, local: datetime) -> datetime:
    """Return the moment at which a clock in the schedule's zone shows `local`.

    Of a time that comes twice, it returns the one that fires. A time in a gap moves as the
    schedule says; SKIP acts as NEXT here.
    """
    name = getattr(schedule, "timezone", "UTC")
    gap, fold = getattr(schedule, "gap", "NEXT"), getattr(schedule, "fold", "FIRST")
    whole = (local.replace(tzinfo=UTC, microsecond=0) - EPOCH) // SECOND
    second = local_instant(whole, transitions(name), "NEXT" if gap == "SKIP" else gap, fold)
    assert second is not None  # only SKIP returns None
    return EPOCH + timedelta(seconds=second, microseconds=local.microsecond)


def _from_gap(
    calendar: Calendar, gap: str, second: int, change: int, before: int, offset: int
) -> int | None:
    """Return the first instant not before `second` that `gap` moves out of the gap at `change`."""
    end = change + offset
    if gap == "NEXT" and second == change and calendar.next_local(change + before) < end:
        return change
    if gap == "SHIFT" and second + before < end:
        local = calendar.next_local(second + before)
        if local < end:
            return local - before
    return None
