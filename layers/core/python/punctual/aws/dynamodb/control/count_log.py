"""The log of counted changes: its keys, its rows, and the counts of a slice of ten seconds.

A row holds a part of a batch: the id of each change and what it adds. The same change may stand in
several rows. The counts of a slice include each change once.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Struct

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import KeyRange, check_layout
from punctual.aws.dynamodb.keys import LAST_CHAR, RowKey, join_parts, parse_time_key, time_key
from punctual.domain.utc import EPOCH

COUNT_SLICE = timedelta(seconds=10)
# Most changes are made around a full minute, so one slice holds them all.
COUNT_SLICE_OFFSET = timedelta(seconds=5)
# A stream keeps and repeats a change for a day. The daily walk folds what stays unfolded.
COUNT_LOG_RETENTION = timedelta(days=4)
MAX_CHANGES_PER_COUNTED_ROW = 200  # one batch of Lambda
_CHANGE_ID_BYTES = 8  # bytes that name a change
_LOG_NAME_BYTES = 8

Counts = Mapping[str, int]


class CountChange(NamedTuple):
    """What one change of a job adds to the totals and to the counts of minutes."""

    change_id: bytes
    changed_at: datetime  # as the stream says, so each copy has the same time
    totals: Counts
    minutes: Mapping[datetime, Counts] = {}
    moved_counts: Mapping[
        str, int
    ] = {}  # changes of the counts of job states, positive or negative

    @property
    def has_counts(self) -> bool:
        all_counts = (self.totals, *self.minutes.values())
        return any(number for counts in all_counts for number in counts.values())


def change_id_of(position: str, job_id: str) -> bytes:
    """Return the id of the change at this position of the stream."""
    return blake2b(f"{position}\0{job_id}".encode(), digest_size=_CHANGE_ID_BYTES).digest()


class SliceCounts(Struct, array_like=True):
    """Sums: of totals, of the counts of each minute by its key, and of moved counts."""

    totals: dict[str, int] = msgspec.field(default_factory=dict)
    minutes: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    moved: dict[str, int] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.totals or self.minutes or self.moved)

    def minus(self, other: "SliceCounts") -> "SliceCounts":
        """Return the difference, without what is zero.

        >>> SliceCounts({"a": 2, "b": 1}).minus(SliceCounts({"a": 1, "b": 1})).totals
        {'a': 1}
        """
        minutes = {
            minute: _sum_counts([(self.minutes.get(minute, {}), 1), (taken, -1)])
            for minute in sorted(self.minutes.keys() | other.minutes.keys())
            for taken in [other.minutes.get(minute, {})]
        }
        return SliceCounts(
            _sum_counts([(self.totals, 1), (other.totals, -1)]),
            {minute: counts for minute, counts in minutes.items() if counts},
            _sum_counts([(self.moved, 1), (other.moved, -1)]),
        )

    def plus(self, other: "SliceCounts") -> "SliceCounts":
        return self.minus(SliceCounts().minus(other))


class _LoggedChanges(Struct, array_like=True):
    """Changes with the same effect share it: `numbers` gives the effect of each id."""

    ids: bytes
    numbers: list[int]
    effects: bytes  # compressed


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_LoggedChanges).decode
_decode_effects = msgspec.msgpack.Decoder(list[SliceCounts]).decode
_decode_counts = msgspec.msgpack.Decoder(SliceCounts).decode


def log_item(tenant: str, slice_at: datetime, changes: Sequence[CountChange]) -> Item:
    """Return the row of these changes, which are distinct. The same changes make the same row."""
    ordered = sorted(changes, key=lambda change: change.change_id)
    numbers_by_effect: dict[bytes, int] = {}
    effects: list[SliceCounts] = []
    numbers = []
    for change in ordered:
        effect = _effect_of(change)
        number = numbers_by_effect.setdefault(_encode(effect), len(effects))
        if number == len(effects):
            effects.append(effect)
        numbers.append(number)
    ids = b"".join(change.change_id for change in ordered)
    packed = _encode(_LoggedChanges(ids, numbers, zlib.compress(_encode(effects))))
    digest = blake2b(ids, digest_size=_LOG_NAME_BYTES).hexdigest()
    return {
        **log_key(tenant, time_key(slice_at), digest).item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        keys.DATA_ATTR: to_attribute(packed),
        keys.TTL: to_attribute(keys.to_ttl(slice_at + COUNT_LOG_RETENTION)),
    }


def counts_of_log(rows: Iterable[Item]) -> SliceCounts:
    """Return the counts of all changes in these rows, each change once."""
    seen: set[bytes] = set()
    totals: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    minutes: dict[str, Counter[str]] = {}
    for row in rows:
        logged = _decode(bytes(check_layout(row)[keys.DATA_ATTR]["B"]))
        times: Counter[int] = Counter()
        for place, number in enumerate(logged.numbers):
            start = place * _CHANGE_ID_BYTES
            change_id = logged.ids[start : start + _CHANGE_ID_BYTES]
            if change_id not in seen:
                seen.add(change_id)
                times[number] += 1
        effects = _decode_effects(zlib.decompress(logged.effects))
        for number, count in times.items():
            effect = effects[number]
            _add(totals, effect.totals, count)
            _add(moved, effect.moved, count)
            for minute, counts in effect.minutes.items():
                _add(minutes.setdefault(minute, Counter()), counts, count)
    return SliceCounts(totals, dict(minutes), moved).minus(SliceCounts())


def sum_of_minutes(slices: Iterable[SliceCounts]) -> dict[str, dict[str, int]]:
    """Return the counts of each minute in all of these slices."""
    sums: dict[str, Counter[str]] = {}
    for counts in slices:
        for minute, minute_counts in counts.minutes.items():
            _add(sums.setdefault(minute, Counter()), minute_counts, 1)
    return SliceCounts(minutes=dict(sums)).minus(SliceCounts()).minutes


def folded_attribute(counts: SliceCounts) -> dict[str, bytes]:
    """Return the attribute of the counts of a slice that are in the totals."""
    return {"B": zlib.compress(_encode(counts))}


def parse_folded(item: Item) -> SliceCounts:
    """Return the counts of a slice that are in the totals. Without a row there are none."""
    if not item:
        return SliceCounts()
    return _decode_counts(zlib.decompress(bytes(check_layout(item)[keys.DATA_ATTR]["B"])))


def slice_start(at: datetime) -> datetime:
    """Return the start of the slice: second 5, 15, 25 and so on of a minute."""
    return (
        EPOCH - COUNT_SLICE_OFFSET + (at - EPOCH + COUNT_SLICE_OFFSET) // COUNT_SLICE * COUNT_SLICE
    )


# Keys


def log_key(tenant: str, slice_text: str, digest: str) -> RowKey:
    """Return the key of a row of the log.

    >>> log_key("acme", "2026-12-01T10:00:05.000000Z", "ab")
    RowKey(pk='acme#counted#log', sk='2026-12-01T10:00:05.000000Z#ab')
    """
    return RowKey(join_parts(tenant, "counted", "log"), f"{slice_text}#{digest}")


def log_range(tenant: str, slice_text: str) -> KeyRange:
    """Return the range of the log's rows of a slice."""
    return KeyRange(log_key(tenant, "", "").pk, slice_text, f"{slice_text}#{LAST_CHAR}")


def folded_key(tenant: str, slice_text: str) -> RowKey:
    """Return the key of the row with the folded counts of a slice."""
    return RowKey(join_parts(tenant, "counted"), slice_text)


def fold_claim_key(tenant: str) -> RowKey:
    """Return the key of the claim on large slices. It sorts before all slices.

    >>> fold_claim_key("acme") < folded_key("acme", "2026-12-01T10:00:05.000000Z")
    True
    """
    return RowKey(join_parts(tenant, "counted"), "!claim")


def unfolded_key(tenant: str, slice_text: str) -> RowKey:
    """Return the key of the mark of a slice with rows in its log that are not folded.

    >>> unfolded_key("acme", "2026-12-01T10:00:05.000000Z").pk
    'acme#uncounted'
    """
    return RowKey(join_parts(tenant, "uncounted"), slice_text)


def parse_slice(slice_text: str) -> datetime:
    return parse_time_key(slice_text)


def _effect_of(change: CountChange) -> SliceCounts:
    minutes = {
        time_key(minute_at): dict(sorted(counts.items()))
        for minute_at, counts in sorted(change.minutes.items())
        if any(counts.values())
    }
    return SliceCounts(
        dict(sorted(change.totals.items())), minutes, dict(sorted(change.moved_counts.items()))
    )


def _add(sums: Counter[str], counts: Counts, times: int) -> None:
    for name, count in counts.items():
        sums[name] += count * times


def _sum_counts(all_counts: Iterable[tuple[Counts, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for counts, factor in all_counts:
        _add(sums, counts, factor)
    return {name: count for name, count in sorted(sums.items()) if count}
