"""Describe in plain words what clock changes do to the times of a schedule."""

from bisect import bisect_right
from datetime import datetime, timedelta

from punctual.domain.schedules.cron.expression import SECONDS_PER_DAY, Calendar
from punctual.domain.schedules.timezones import transitions
from punctual.domain.utc import EPOCH, SECOND


def clock_changes(
    calendar: Calendar, zone_name: str, gap: str, fold: str, after: datetime, until: datetime
) -> tuple[str, ...]:
    """Return one sentence for each relevant clock change after `after`, up to `until`."""
    sentences = []
    for change, old_offset, offset in _changes_between(zone_name, after, until):
        low, high = sorted((change + old_offset, change + offset))
        first = calendar.next_local(low)
        if first >= high:
            continue
        is_single = calendar.next_local(first + 1) >= high
        affected = (
            _time_of_day(first)
            if is_single
            else f"a time from {_time_of_day(low)} to {_time_of_day(high)}"
        )
        if offset > old_offset:
            moved_local = first + offset - old_offset if is_single else None
            effect = _in_gap(calendar.is_fixed, gap, change + offset, moved_local)
            sentences.append(
                f"{_change_sentence(zone_name, change, old_offset, offset)}; {affected} {effect}"
            )
        else:
            effect = _in_fold(calendar.is_fixed, fold)
            sentences.append(
                f"{_change_sentence(zone_name, change, old_offset, offset)}; {affected} {effect}"
            )
    return tuple(sentences)


def local_time_drift(
    seconds: int, zone_name: str, after: datetime, until: datetime
) -> tuple[str, ...]:
    """Return one sentence for each clock change that moves the local time of an interval.

    An interval of whole days keeps 24 hours a day. Other intervals get no sentence.
    """
    if seconds % SECONDS_PER_DAY:
        return ()
    return tuple(
        f"{_change_sentence(zone_name, change, old_offset, offset)}; a day here has 24 hours, "
        f"so the local time of day is {_duration(abs(offset - old_offset))} "
        f"{'later' if offset > old_offset else 'earlier'} from then on"
        for change, old_offset, offset in _changes_between(zone_name, after, until)
    )


def _changes_between(
    zone_name: str, after: datetime, until: datetime
) -> list[tuple[int, int, int]]:
    changes, offsets = transitions(zone_name)
    low = bisect_right(changes, (after - EPOCH) // SECOND)
    high = bisect_right(changes, (until - EPOCH) // SECOND)
    return [(changes[index], offsets[index], offsets[index + 1]) for index in range(low, high)]


def _in_gap(is_fixed: bool, gap: str, end: int, moved_local: int | None) -> str:
    if not is_fixed:
        return "does not exist then and is passed over"
    if gap == "NEXT":
        return f"does not exist then and fires at {_time_of_day(end)}, the first moment after"
    if gap == "SHIFT":
        at = _time_of_day(moved_local) if moved_local is not None else "a time that much later"
        return f"does not exist then and fires at {at}"
    return "does not exist then and does not fire"


def _in_fold(is_fixed: bool, fold: str) -> str:
    if not is_fixed or fold == "BOTH":
        return "comes twice and fires both times"
    return f"comes twice and fires the {fold.lower()} time only"


def _change_sentence(zone_name: str, change: int, old_offset: int, offset: int) -> str:
    day = EPOCH + timedelta(seconds=change + old_offset)
    direction = "forward" if offset > old_offset else "back"
    return (
        f"on {day.day} {day:%B} {day.year} clocks in {zone_name} go {direction} "
        f"from {_time_of_day(change + old_offset)} to {_time_of_day(change + offset)}"
    )


def _time_of_day(local: int) -> str:
    time = EPOCH + timedelta(seconds=local)
    return f"{time:%H:%M:%S}" if time.second else f"{time:%H:%M}"


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    parts = [(hours, "hour"), (minutes, "minute")]
    return " and ".join(
        f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in parts if number
    )
