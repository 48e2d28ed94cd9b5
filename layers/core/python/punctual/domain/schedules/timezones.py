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

TZDATA_VERSION: str = tzdata.IANA_VERSION
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON = datetime(2200, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_EPOCH_ORDINAL = EPOCH.toordinal()
_TWO_DAYS = 2 * 86_400  # longer than any offset
# A plain path: `importlib.resources` and its imports would add 5 ms to each start.
_FOLDER = os.path.dirname(tzdata.__file__)
# Zones that still change their clocks do so at full quarters of an hour in UTC.
_QUARTER = 900
_FAR_BACK = -60_000_000_000


class Transitions(NamedTuple):
    """The offset changes of a zone. `offsets[i]`, in seconds, holds until `at[i]`."""

    at: tuple[int, ...]
    offsets: tuple[int, ...]


def zone(name: str) -> ZoneInfo:
    """Return the zone with this IANA name. For a wrong name, ValueError gives a hint."""
    if name not in _names():
        raise ValueError(_unknown(name))
    return _load(name)


@cache
def transitions(name: str) -> Transitions:
    """Return every offset change of a zone before the horizon."""
    info = zone(name)
    explicit, goes_on = _explicit(_file(name))
    moments = [*explicit, *_by_rule(info, explicit[-1] if explicit else 0)] if goes_on else explicit
    at: list[int] = []
    offsets = [_offset(info, moments[0] - 1 if moments else 0)]
    for moment in moments:
        offset = _offset(info, moment)
        if offset != offsets[-1]:
            at.append(moment)
            offsets.append(offset)
    return Transitions(tuple(at), tuple(offsets))


def local_day(name: str, moment: datetime) -> int:
    """Return the ordinal of the local date at `moment`."""
    table = transitions(name)
    second = (moment - EPOCH) // SECOND
    return (second + table.offsets[bisect_right(table.at, second)]) // 86_400 + _EPOCH_ORDINAL


def end_of_days(name: str, moment: datetime, days: int) -> datetime:
    """Return the end of `days` local dates from that of `moment`, or an earlier clock change.

    After a clock change the local date may be an earlier one again.
    """
    table = transitions(name)
    second = (moment - EPOCH) // SECOND
    index = bisect_right(table.at, second)
    offset = table.offsets[index]
    end = ((second + offset) // 86_400 + days) * 86_400 - offset
    if index < len(table.at):
        end = min(end, table.at[index])
    return EPOCH + timedelta(seconds=end)


def local_spans(name: str, first: int, end: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield the spans [from, to) with a local date in [first, end), in days since 1970.

    A clock that is set back over midnight makes several spans.
    """
    changes, offsets = transitions(name)
    low, high = first * 86_400, end * 86_400
    for index in range(bisect_right(changes, low - _TWO_DAYS), len(offsets)):
        begin = max(low - offsets[index], changes[index - 1] if index else low - _TWO_DAYS)
        until = high - offsets[index]
        if index < len(changes):
            until = min(until, changes[index])
        if begin < until:
            yield EPOCH + timedelta(seconds=begin), EPOCH + timedelta(seconds=until)
        elif begin > high + _TWO_DAYS:
            return


@cache
def _names() -> frozenset[str]:
    with open(os.path.join(_FOLDER, "zones"), encoding="ascii") as listed:
        return frozenset(listed.read().split())


@cache
def _load(name: str) -> ZoneInfo:
    with open(_path(name), "rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _path(name: str) -> str:
    return os.path.join(_FOLDER, "zoneinfo", *name.split("/"))


def _file(name: str) -> bytes:
    with open(_path(name), "rb") as file:
        return file.read()


def _unknown(name: str) -> str:
    wanted = name.strip().replace(" ", "_").casefold()
    near = [n for n in _names() if wanted in (n.casefold(), n.casefold().split("/")[-1])]
    hint = (
        f"; did you mean {min(near, key=lambda n: (len(n), n))!r}?"
        if near
        else ", such as 'Europe/Berlin' or 'UTC'"
    )
    return f"{name[:64]!r} is no IANA time zone{hint}"


def _offset(info: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, info).utcoffset()
    if offset is None:
        raise AssertionError(f"{info.key} has no offset")
    return offset // SECOND


def _explicit(data: bytes) -> tuple[list[int], bool]:
    """Return the changes that a TZif file lists, and whether its rule adds more (RFC 8536)."""
    start = _block_end(data, 0, 4)
    counts = struct.unpack_from(">6l", data, start + 20)
    times = struct.unpack_from(f">{counts[3]}q", data, start + 44)
    footer = data[_block_end(data, start, 8) :]
    # Some files start with a change at the beginning of time. No datetime can hold it.
    return [t for t in times if t > _FAR_BACK], b"," in footer


def _block_end(data: bytes, start: int, width: int) -> int:
    ut, std, leaps, times, types, chars = struct.unpack_from(">6l", data, start + 20)
    body = times * (width + 1) + types * 6 + chars + leaps * (width + 4) + std + ut
    return start + 44 + int(body)


def _by_rule(info: ZoneInfo, after: int) -> list[int]:
    """Return the changes by the last rule of a zone.

    A rule makes two changes a year, so comparing the offsets of each month finds them.
    """
    found = []
    low = after + -after % _QUARTER
    low_offset = _offset(info, low)
    day = EPOCH + timedelta(seconds=low)
    year, month = day.year, day.month
    while year < HORIZON.year:
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        high = (datetime(year, month, 1, tzinfo=UTC) - EPOCH) // SECOND
        high_offset = _offset(info, high)
        if high_offset != low_offset:
            found.append(_change_between(info, low, high, low_offset))
        low, low_offset = high, high_offset
    return found


def _change_between(info: ZoneInfo, low: int, high: int, before: int) -> int:
    while high - low > _QUARTER:
        middle = (low + high) // (2 * _QUARTER) * _QUARTER
        low, high = (middle, high) if _offset(info, middle) == before else (low, middle)
    return high
