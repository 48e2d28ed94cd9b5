"""Counts that the stream's reader keeps, a row a tenant and a row a minute: reading them is cheap.

Adding is no put: the same again would count twice. The stream hands the changes of one slot of a
tenant's jobs to one reader at a time, in order. So the row knows, for each slot, from which change
to which it counted last: whatever comes again of these, all at once or split, is passed over.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws import keys, status_keys
from punctual.aws.attributes import Item, to_attribute
from punctual.aws.calls import Refused
from punctual.aws.dynamo import Condition, Dynamo, Range, known
from punctual.aws.sorting import moment, parse_moment
from punctual.domain.errors import Unavailable

KEPT = timedelta(hours=3)
MINUTES = 120  # rows a page

_TRIES = 4  # only a reader that was taken for dead still writes beside us
_PLACE = 17  # bytes of a place in the stream, which has up to 40 digits
_OURS = (keys.PK, keys.SK, keys.TTL, keys.FORMAT)


class Change(NamedTuple):
    """What one change of a head adds; `place` is its number in the stream."""

    slot: int
    place: int
    counts: Mapping[str, int]


class Minute(NamedTuple):
    at: datetime
    counts: Mapping[str, int]


class Tallies:
    def __init__(self, dynamo: Dynamo, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def add(self, tenant: str, changes: Sequence[Change]) -> None:
        self._add(status_keys.totals(tenant), changes, {})

    def add_minute(self, tenant: str, at: datetime, changes: Sequence[Change]) -> None:
        kept = {keys.TTL: to_attribute(keys.expiry(at + KEPT))}
        self._add(status_keys.minute(tenant, moment(at)), changes, kept)

    def totals(self, tenant: str) -> Mapping[str, int]:
        at = status_keys.totals(tenant)
        row = self._dynamo.read(self._table, [at]).get(at)
        return {} if row is None else _counts(row)

    def minutes(self, tenant: str, start: datetime, end: datetime) -> Sequence[Minute]:
        """Oldest first, from `start` to `end`, those in which something was counted."""
        low, high = (
            status_keys.minute(tenant, moment(start)),
            status_keys.minute(tenant, moment(end)),
        )
        rows = self._dynamo.query(self._table, Range(low.pk, low.sk, high.sk), MINUTES)
        return [Minute(parse_moment(row[keys.SK]["S"]), _counts(row)) for row in rows]

    def _add(self, at: keys.RowKey, changes: Sequence[Change], also: Item) -> None:
        """What is ahead of all that was counted needs no reading; else the row is asked.

        It is asked as well where all of them come to nothing together: the first may be counted
        already, by whoever died then.
        """
        changes = [one for one in changes if any(one.counts.values())]
        if not changes:
            return
        marks = _marks(changes)
        left, holds = changes, _all_ahead(marks)
        if not _sum(changes):
            row: Mapping[str, Any] = self._dynamo.read(self._table, [at]).get(at, {})
            left, holds = _uncounted(row, changes), _still(row, marks)
        for _ in range(_TRIES):
            added = _sum(left)
            if not added:
                return
            refused = self._dynamo.update_if(self._table, at, _adding(added, marks, also, holds))
            if not isinstance(refused, Refused):
                return
            row = refused.item
            left, holds = _uncounted(row, changes), _still(row, marks)
        raise Unavailable(f"The counts of {at.pk} change too often.")


def _sum(changes: Sequence[Change]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in changes:
        found.update(one.counts)
    return {name: count for name, count in sorted(found.items()) if count}


def _marks(changes: Sequence[Change]) -> dict[str, bytes]:
    """By the attribute of a slot: the last change of it, then the first; as bytes they compare."""
    places: dict[str, list[int]] = {}
    for one in changes:
        places.setdefault(f"b{one.slot}", []).append(one.place)
    return {name: _bytes(max(some)) + _bytes(min(some)) for name, some in sorted(places.items())}


def _bytes(place: int) -> bytes:
    return place.to_bytes(_PLACE, "big")


def _uncounted(row: Mapping[str, Any], changes: Sequence[Change]) -> list[Change]:
    return [one for one in changes if not _is_counted(row, one)]


def _is_counted(row: Mapping[str, Any], one: Change) -> bool:
    """A version before this one has left text there, which says nothing of places."""
    mark = row.get(f"b{one.slot}", {}).get("B")
    return mark is not None and mark[_PLACE:] <= _bytes(one.place) <= mark[:_PLACE]


def _all_ahead(marks: Mapping[str, bytes]) -> Condition:
    return Condition(
        " AND ".join(f"(NOT attribute_type(#{name}, :b) OR #{name} < :h{name})" for name in marks),
        values={":b": {"S": "B"}}
        | {f":h{name}": to_attribute(mark[_PLACE:]) for name, mark in marks.items()},
    )


def _still(row: Mapping[str, Any], marks: Mapping[str, bytes]) -> Condition:
    """Nothing was counted since the row was read."""
    there = {name: row[name] for name in marks if name in row}
    return Condition(
        " AND ".join(
            f"#{name} = :h{name}" if name in there else f"attribute_not_exists(#{name})"
            for name in marks
        ),
        values={f":h{name}": value for name, value in there.items()},
    )


def _adding(
    added: Mapping[str, int], marks: Mapping[str, bytes], also: Item, holds: Condition
) -> Condition:
    sets = {
        **{name: to_attribute(mark) for name, mark in marks.items()},
        **also,
        keys.FORMAT: to_attribute(keys.LAYOUT),
    }
    change = "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(added)))
    change += " SET " + ", ".join(f"#{name} = :s{name}" for name in sets)
    return Condition(
        holds.holds,
        change,
        {**{f"#a{i}": name for i, name in enumerate(added)}, **{f"#{name}": name for name in sets}},
        {
            **{f":a{i}": to_attribute(count) for i, count in enumerate(added.values())},
            **{f":s{name}": value for name, value in sets.items()},
            **holds.values,
        },
    )


def _counts(row: Item) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in known(row).items()
        if "N" in value and name not in _OURS
    }
