"""Describe in plain words what clock changes do to the times of a schedule."""

from bisect import bisect_right
from datetime import datetime, timedelta

from punctual.domain.schedules.cron.expression import DAY, Calendar
from punctual.domain.schedules.timezones import EPOCH, SECOND, transitions


def clock_changes(
    calendar: Calendar, name: str, gap: str, fold: str, after: datetime, until: datetime
) -> tuple[str, ...]:
    """Return one sentence for each relevant clock change after `after`, up to `until`."""
    said = []
    for change, before, offset in _between(name, after, until):
        low, high = sorted((change + before, change + offset))
        first = calendar.next_local(low)
        if first >= high:
            continue
        alone = calendar.next_local(first + 1) >= high
        what = (
            _time_of_day(first)
            if alone
            else f"a time from {_time_of_day(low)} to {_time_of_day(high)}"
        )
        if offset > before:
            moved = first + offset - before if alone else None
            what_then = _in_gap(calendar.is_fixed, gap, change + offset, moved)
            said.append(f"{_sentence(name, change, before, offset)}; {what} {what_then}")
        else:
            what_then = _in_fold(calendar.is_fixed, fold)
            said.append(f"{_sentence(name, change, before, offset)}; {what} {what_then}")
    return tuple(said)


def drift(seconds: int, name: str, after: datetime, until: datetime) -> tuple[str, ...]:
    """Return one sentence for each clock change that moves the local time of an interval.

    An interval of whole days keeps 24 hours a day. Other intervals get no sentence.
    """
    if seconds % DAY:
        return ()
    return tuple(
        f"{_sentence(name, change, before, offset)}; a day here has 24 hours, so the local time "
        f"of day is {_duration(abs(offset - before))} {'later' if offset > before else 'earlier'} "
        f"from then on"
        for change, before, offset in _between(name, after, until)
    )


def _between(name: str, after: datetime, until: datetime) -> list[tuple[int, int, int]]:
    at, offsets = transitions(name)
    low = bisect_right(at, (after - EPOCH) // SECOND)
    high = bisect_right(at, (until - EPOCH) // SECOND)
    return [(at[i], offsets[i], offsets[i + 1]) for i in range(low, high)]


def _in_gap(is_fixed: bool, gap: str, end: int, moved: int | None) -> str:
    if not is_fixed:
        return "does not exist then and is passed over"
    if gap == "NEXT":
        return f"does not exist then and fires at {_time_of_day(end)}, the first moment after"
    if gap == "SHIFT":
        at = _time_of_day(moved) if moved is not None else "a time that much later"
        return f"does not exist then and fires at {at}"
    return "does not exist then and does not fire"


def _in_fold(is_fixed: bool, fold: str) -> str:
    if not is_fixed or fold == "BOTH":
        return "comes twice and fires both times"
    return f"comes twice and fires the {fold.lower()} time only"


def _sentence(name: str, change: int, before: int, offset: int) -> str:
    day = EPOCH + timedelta(seconds=change + before)
    way = "forward" if offset > before else "back"
    return (
        f"on {day.day} {day:%B} {day.year} clocks in {name} go {way} "
        f"from {_time_of_day(change + before)} to {_time_of_day(change + offset)}"
    )


def _time_of_day(local: int) -> str:
    time = EPOCH + timedelta(seconds=local)
    return f"{time:%H:%M:%S}" if time.second else f"{time:%H:%M}"


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    parts = [(hours, "hour"), (minutes, "minute")]
    return " and ".join(f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in parts if n)
