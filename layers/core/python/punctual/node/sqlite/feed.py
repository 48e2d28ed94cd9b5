"""The node's event stream. `event` tasks publish numbered events in the commit of their runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from punctual.engine.ports.clock import Clock
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import micros
from punctual.node.sqlite.transaction import Transaction

PACK = 64  # events in a row
PACKED = 65_536  # bytes, after which a row is full
_Pack = tuple[int, int, bytes]
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode


class SqliteFeed:
    """Stores events by number, which is also their id.

    Numbers only grow, because the newest row is never removed.

    A row holds a list of events that were published together, under the number of the last.
    """

    def __init__(self, unit: Transaction, clock: Clock) -> None:
        self._unit = unit
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self._held: list[_Pack] = []
        self._last: int | None = None

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        encoded = [self._encode(event) for event in events]
        at = micros(self._clock())
        with self._unit:
            last = self._newest()
            self._held.extend(_packs(last, at, encoded))
            self._last = last + len(encoded)
            return [str(number) for number in range(last + 1, self._last + 1)]

    def read(self, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Return at most `limit` events with numbers above `after`, in order."""
        found: list[tuple[int, dict[str, Any]]] = []
        with self._unit:
            self.flush()
            rows = self._unit.db.execute(
                "SELECT seq, event FROM feed WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
            )
            for seq, row in rows:
                try:
                    events = _decode(row)
                except DECODING as error:
                    self._unit.damage.note("feed", (seq,), error)
                    continue
                numbered = enumerate(events, seq - len(events) + 1)
                found.extend((number, event) for number, event in numbered if number > after)
                if len(found) >= limit:
                    break
            rows.close()
            return found[:limit]

    def _newest(self) -> int:
        if self._last is None:
            (last,) = self._unit.db.execute("SELECT coalesce(max(seq), 0) FROM feed").fetchone()
            self._last = int(last)
        return self._last

    def flush(self) -> None:
        if self._held:
            self._unit.begin()
            self._unit.db.executemany("INSERT INTO feed VALUES (?, ?, ?)", self._held)
            self._held.clear()

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._held.clear()
        self._last = None


def _packs(last: int, at: int, events: Sequence[bytes]) -> Iterator[_Pack]:
    """Yield rows for events numbered from `last` + 1. The size of a row is bounded."""
    pack: list[bytes] = []
    size = 0
    for event in events:
        if len(pack) == PACK or size + len(event) > PACKED:
            if pack:
                yield last, at, b"[%b]" % b",".join(pack)
            pack, size = [], 0
        pack.append(event)
        size += len(event)
        last += 1
    if pack:
        yield last, at, b"[%b]" % b",".join(pack)
