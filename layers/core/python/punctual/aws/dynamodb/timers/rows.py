"""Conversion between timers and their rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import check_layout, key_of
from punctual.aws.dynamodb.keys import LAYOUT_ATTR, PK, SHARED_TIMERS_LAYOUT, SK, RowKey
from punctual.aws.dynamodb.timers import keys
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR
from punctual.engine.ports.timers import Timer

# Bytes as DynamoDB counts them, so that each write of a row costs one write unit.
MAX_SHARED_ROW_BYTES = 1_000
# 2: the layout number.
_ATTR_NAME_BYTES = len(PK) + len(SK) + len(LAYOUT_ATTR) + 2 + len(MEMBERS_ATTR)
_NO_MEMBERS: Mapping[str, Any] = {"SS": ()}
_timer_order = attrgetter("sort_key")


class TimerRow(NamedTuple):
    """A row with its timers. `members` is the encoding of the timers in a shared row."""

    key: RowKey
    timers: Sequence[Timer]
    members: Sequence[str] = ()

    def item(self) -> Item:
        if not self.members:
            return dict(self.key.item())
        layout = {"N": str(SHARED_TIMERS_LAYOUT)}
        return {**self.key.item(), LAYOUT_ATTR: layout, MEMBERS_ATTR: {"SS": list(self.members)}}


def build_rows(timers: Iterable[Timer], write_id: str) -> Iterator[TimerRow]:
    """Yield the fewest rows that hold the timers, sorted by job within one time.

    Timers of one row are due at the same time, and are mostly deleted together.
    """
    groups: dict[tuple[datetime, int, datetime], dict[Timer, None]] = {}
    for timer in timers:
        groups.setdefault(timer[:3], {})[timer] = None
    for group in groups.values():
        yield from _group_rows(sorted(group, key=_timer_order), write_id)


def _group_rows(group: Sequence[Timer], write_id: str) -> Iterator[TimerRow]:
    members = [member_text(timer) for timer in group]
    start = 0
    while start < len(group):
        single_key = keys.timer_key(*group[start])
        key = keys.shared_row_key(single_key, write_id)
        end, size = start, _ATTR_NAME_BYTES + _utf8_size(key.pk) + _utf8_size(key.sk)
        while (
            end < len(group) and (size := size + _utf8_size(members[end])) <= MAX_SHARED_ROW_BYTES
        ):
            end += 1
        if end - start > 1:
            yield TimerRow(key, group[start:end], members[start:end])
            start = end
        else:
            yield TimerRow(single_key, group[start : start + 1])
            start += 1


def _utf8_size(text: str) -> int:
    return len(text.encode())


def member_text(timer: Timer) -> str:
    return keys.member_text(timer.tenant, timer.job_id, timer.version)


def read_members(row: Mapping[str, Any]) -> Sequence[str]:
    """Return the members of a shared row. An operator may have removed the attribute by hand."""
    members: Sequence[str] = check_layout(row, SHARED_TIMERS_LAYOUT).get(MEMBERS_ATTR, _NO_MEMBERS)[
        "SS"
    ]
    return members


def is_later_layout(row: Mapping[str, Any]) -> bool:
    """Return whether only a later version can read the row."""
    return LAYOUT_ATTR in row and int(row[LAYOUT_ATTR]["N"]) > SHARED_TIMERS_LAYOUT


def parse_rows(rows: Iterable[Mapping[str, Any]]) -> list[TimerRow]:
    return [parse_row(row) for row in rows if not is_later_layout(row)]


def parse_row(row: Mapping[str, Any]) -> TimerRow:
    key = key_of(row)
    if LAYOUT_ATTR not in row:  # a single timer: the key holds all fields
        return TimerRow(key, (Timer(*keys.parse_timer_key(key)),))
    members = read_members(row)
    bucket, shard = keys.parse_partition(key.pk)
    timer_at = keys.time_of(key.sk)
    timers = [Timer(bucket, shard, timer_at, *keys.parse_member(text)) for text in members]
    return TimerRow(key, timers, members)
