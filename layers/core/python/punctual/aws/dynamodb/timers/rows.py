"""Conversion between timers and their rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import key_of, known
from punctual.aws.dynamodb.keys import FORMAT, PK, SHARED_TIMERS, SK, RowKey
from punctual.aws.dynamodb.timers import keys
from punctual.engine.ports.timers import Timer

MOST = 1_000  # bytes as DynamoDB counts them, so that each write of a row costs one write unit
MEMBERS = keys.MEMBERS
_NAMES = len(PK) + len(SK) + len(FORMAT) + 2 + len(MEMBERS)  # 2: the layout number
_NONE: Mapping[str, Any] = {"SS": ()}
_order = attrgetter("order")


class TimerRow(NamedTuple):
    """A row with its timers. `members` is the encoding of the timers in a shared row."""

    key: RowKey
    timers: Sequence[Timer]
    members: Sequence[str] = ()

    def item(self) -> Item:
        if not self.members:
            return dict(self.key.item())
        layout = {"N": str(SHARED_TIMERS)}
        return {**self.key.item(), FORMAT: layout, MEMBERS: {"SS": list(self.members)}}


def rows_for(timers: Iterable[Timer], mark: str) -> Iterator[TimerRow]:
    """Yield the fewest rows that hold the timers, sorted by job within one time.

    Timers of one row are due at the same time, and are mostly deleted together.
    """
    groups: dict[tuple[datetime, int, datetime], dict[Timer, None]] = {}
    for timer in timers:
        groups.setdefault(timer[:3], {})[timer] = None
    for group in groups.values():
        yield from _shared(sorted(group, key=_order), mark)


def _shared(group: Sequence[Timer], mark: str) -> Iterator[TimerRow]:
    members = [member(timer) for timer in group]
    begin = 0
    while begin < len(group):
        alone = keys.timer(*group[begin])
        key = keys.shared(alone, mark)
        end, size = begin, _NAMES + _bytes(key.pk) + _bytes(key.sk)
        while end < len(group) and (size := size + _bytes(members[end])) <= MOST:
            end += 1
        if end - begin > 1:
            yield TimerRow(key, group[begin:end], members[begin:end])
            begin = end
        else:
            yield TimerRow(alone, group[begin : begin + 1])
            begin += 1


def _bytes(text: str) -> int:
    return len(text.encode())


def member(timer: Timer) -> str:
    return keys.member(timer.tenant, timer.job_id, timer.version)


def members_of(row: Mapping[str, Any]) -> Sequence[str]:
    """Return the members of a shared row. An operator may have removed the attribute by hand."""
    found: Sequence[str] = known(row, SHARED_TIMERS).get(MEMBERS, _NONE)["SS"]
    return found


def is_later(row: Mapping[str, Any]) -> bool:
    """Return whether only a later version can read the row."""
    return FORMAT in row and int(row[FORMAT]["N"]) > SHARED_TIMERS


def read_rows(rows: Iterable[Mapping[str, Any]]) -> list[TimerRow]:
    return [read_row(row) for row in rows if not is_later(row)]


def read_row(row: Mapping[str, Any]) -> TimerRow:
    key = key_of(row)
    if FORMAT not in row:  # a single timer: the key holds all fields
        return TimerRow(key, (Timer(*keys.parse_timer(key)),))
    members = members_of(row)
    bucket, shard = keys.parse_place(key.pk)
    at = keys.moment_of(key.sk)
    timers = [Timer(bucket, shard, at, *keys.parse_member(text)) for text in members]
    return TimerRow(key, timers, members)
