"""Time zones from the pinned tzdata package, never from the machine."""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]

from punctual.domain.utc import EPOCH, SECOND

TZDATA_VERSION: str = tzdata.IANA_VERSION
HORIZON = datetime(2200, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = EPOCH.toordinal()
_TWO_DAYS_SECONDS = 2 * 86_400  # longer than any offset
# A plain path: `importlib.resources` and its imports would add 5 ms to each start.
_TZDATA_FOLDER = os.path.dirname(tzdata.__file__)
# Zones that still change their clocks do so at full quarters of an hour in UTC.
_QUARTER_HOUR_SECONDS = 900
_MIN_CHANGE_SECOND = -60_000_000_000


class Transitions(NamedTuple):
    """The offset changes of a zone. `offsets[i]`, in seconds, holds until `changes[i]`."""

    changes: tuple[int, ...]
    offsets: tuple[int, ...]


def zone(name: str) -> ZoneInfo:
    """Return the zone with this IANA name. For a wrong name, ValueError gives a hint."""
    if name not in _zone_names():
        raise ValueError(_unknown_zone_error(name))
    return _load_zone(name)


@cache
def transitions(name: str) -> Transitions:
    """Return every offset change of a zone before the horizon."""
    zone_info = zone(name)
    listed, has_rule = _listed_changes(_read_zone_file(name))
    change_seconds = (
        [*listed, *_rule_changes(zone_info, listed[-1] if listed else 0)] if has_rule else listed
    )
    changes: list[int] = []
    offsets = [_offset_at(zone_info, change_seconds[0] - 1 if change_seconds else 0)]
    for change_second in change_seconds:
        offset = _offset_at(zone_info, change_second)
        if offset != offsets[-1]:
            changes.append(change_second)
            offsets.append(offset)
    return Transitions(tuple(changes), tuple(offsets))


def local_day(name: str, at: datetime) -> int:
    """Return the ordinal of the local date at `at`."""
    offset_changes = transitions(name)
    second = (at - EPOCH) // SECOND
    return (
        second + offset_changes.offsets[bisect_right(offset_changes.changes, second)]
    ) // 86_400 + _EPOCH_ORDINAL


def end_of_days(name: str, at: datetime, days: int) -> datetime:
    """Return the end of `days` local dates from that of `at`, or an earlier clock change.

    After a clock change the local date may be an earlier one again.
    """
    offset_changes = transitions(name)
    second = (at - EPOCH) // SECOND
    index = bisect_right(offset_changes.changes, second)
    offset = offset_changes.offsets[index]
    end = ((second + offset) // 86_400 + days) * 86_400 - offset
    if index < len(offset_changes.changes):
        end = min(end, offset_changes.changes[index])
    return EPOCH + timedelta(seconds=end)


def local_spans(name: str, first: int, end: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield the spans [from, to) with a local date in [first, end), in days since 1970.

    A clock that is set back over midnight makes several spans.
    """
    changes, offsets = transitions(name)
    low_local, high_local = first * 86_400, end * 86_400
    for index in range(bisect_right(changes, low_local - _TWO_DAYS_SECONDS), len(offsets)):
        begin = max(
            low_local - offsets[index],
            changes[index - 1] if index else low_local - _TWO_DAYS_SECONDS,
        )
        until = high_local - offsets[index]
        if index < len(changes):
            until = min(until, changes[index])
        if begin < until:
            yield EPOCH + timedelta(seconds=begin), EPOCH + timedelta(seconds=until)
        elif begin > high_local + _TWO_DAYS_SECONDS:
            return


@cache
def _zone_names() -> frozenset[str]:
    with open(os.path.join(_TZDATA_FOLDER, "zones"), encoding="ascii") as file:
        return frozenset(file.read().split())


@cache
def _load_zone(name: str) -> ZoneInfo:
    with open(_zone_path(name), "rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _zone_path(name: str) -> str:
    return os.path.join(_TZDATA_FOLDER, "zoneinfo", *name.split("/"))


def _read_zone_file(name: str) -> bytes:
    with open(_zone_path(name), "rb") as file:
        return file.read()


def _unknown_zone_error(name: str) -> str:
    folded_name = name.strip().replace(" ", "_").casefold()
    matches = [
        known_name
        for known_name in _zone_names()
        if folded_name in (known_name.casefold(), known_name.casefold().split("/")[-1])
    ]
    hint = (
        f"; did you mean {min(matches, key=lambda known_name: (len(known_name), known_name))!r}?"
        if matches
        else ", such as 'Europe/Berlin' or 'UTC'"
    )
    return f"{name[:64]!r} is not an IANA time zone{hint}"


def _offset_at(zone_info: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone_info).utcoffset()
    if offset is None:
        raise AssertionError(f"{zone_info.key} has no offset")
    return offset // SECOND


def _listed_changes(data: bytes) -> tuple[list[int], bool]:
    """Return the changes that a TZif file lists, and whether its rule adds more (RFC 8536)."""
    start = _block_end(data, 0, 4)
    counts = struct.unpack_from(">6l", data, start + 20)
    times = struct.unpack_from(f">{counts[3]}q", data, start + 44)
    footer = data[_block_end(data, start, 8) :]
    # Some files start with a change at the beginning of time. No datetime can hold it.
    return [change for change in times if change > _MIN_CHANGE_SECOND], b"," in footer


def _block_end(data: bytes, start: int, width: int) -> int:
    ut, std, leaps, times, types, chars = struct.unpack_from(">6l", data, start + 20)
    body = times * (width + 1) + types * 6 + chars + leaps * (width + 4) + std + ut
    return start + 44 + int(body)


def _rule_changes(zone_info: ZoneInfo, after: int) -> list[int]:
    """Return the changes by the last rule of a zone.

    A rule makes two changes a year, so comparing the offsets of each month finds them.
    """
    changes = []
    low = after + -after % _QUARTER_HOUR_SECONDS
    low_offset = _offset_at(zone_info, low)
    low_at = EPOCH + timedelta(seconds=low)
    year, month = low_at.year, low_at.month
    while year < HORIZON.year:
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        high = (datetime(year, month, 1, tzinfo=UTC) - EPOCH) // SECOND
        high_offset = _offset_at(zone_info, high)
        if high_offset != low_offset:
            changes.append(_change_between(zone_info, low, high, low_offset))
        low, low_offset = high, high_offset
    return changes


def _change_between(zone_info: ZoneInfo, low: int, high: int, old_offset: int) -> int:
    while high - low > _QUARTER_HOUR_SECONDS:
        middle = (low + high) // (2 * _QUARTER_HOUR_SECONDS) * _QUARTER_HOUR_SECONDS
        low, high = (middle, high) if _offset_at(zone_info, middle) == old_offset else (low, middle)
    return high
