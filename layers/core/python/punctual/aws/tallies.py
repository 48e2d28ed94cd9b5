"""Counts that the stream's reader keeps, a row a tenant and a row a minute: reading them is cheap.

Adding is no put: the same again would count twice. So each addition names its batch, the row
remembers the last of those names, and a repeated one is refused.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from punctual.aws import keys, status_keys
from punctual.aws.attributes import Item, to_attribute
from punctual.aws.dynamo import Condition, Dynamo, Range, known
from punctual.aws.sorting import moment, parse_moment

REMEMBERED = 16  # batches a row knows again
KEPT = timedelta(hours=3)
MINUTES = 120  # rows a page

_MARK = "b"
_OURS = (keys.PK, keys.SK, keys.TTL, keys.FORMAT)


class Minute(NamedTuple):
    at: datetime
    counts: Mapping[str, int]


class Tallies:
    def __init__(self, dynamo: Dynamo, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def add(self, tenant: str, counts: Mapping[str, int], batch: str) -> None:
        self._add(status_keys.totals(tenant), counts, batch, {})

    def add_minute(self, tenant: str, at: datetime, counts: Mapping[str, int], batch: str) -> None:
        kept = {keys.TTL: to_attribute(keys.expiry(at + KEPT))}
        self._add(status_keys.minute(tenant, moment(at)), counts, batch, kept)

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

    def _add(self, at: keys.RowKey, counts: Mapping[str, int], batch: str, also: Item) -> None:
        added = {name: count for name, count in sorted(counts.items()) if count}
        if not added:
            return
        digest = blake2b(batch.encode(), digest_size=8).digest()
        also = {**also, keys.FORMAT: to_attribute(keys.LAYOUT)}
        names = {f"#a{i}": name for i, name in enumerate(added)}
        values = {f":a{i}": to_attribute(count) for i, count in enumerate(added.values())}
        sets = {f"#s{i}": name for i, name in enumerate(also)}
        set_to = {f":s{i}": value for i, value in enumerate(also.values())}
        change = "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(added)))
        change += " SET #b = :b, " + ", ".join(f"#s{i} = :s{i}" for i in range(len(also)))
        mark = f"{_MARK}{digest[0] % REMEMBERED}"
        self._dynamo.update_if(
            self._table,
            at,
            Condition(
                "attribute_not_exists(#b) OR #b <> :b",
                change,
                {**names, **sets, "#b": mark},
                {**values, **set_to, ":b": to_attribute(digest.hex())},
            ),
        )


def _counts(row: Item) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in known(row).items()
        if "N" in value and name not in _OURS
    }
