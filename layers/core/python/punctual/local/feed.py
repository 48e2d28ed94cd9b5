"""The node's event stream: what `event` tasks publish, numbered, in the commit of their runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from punctual.engine.ports import Clock
from punctual.local.codec import micros
from punctual.local.unit import Unit


class SqliteFeed:
    """An event's id is its number. Numbers only grow: the newest row is never removed."""

    def __init__(self, unit: Unit, clock: Clock) -> None:
        self._unit = unit
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self._held: list[tuple[int, int, bytes]] = []
        self._last: int | None = None

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        encoded = [self._encode(event) for event in events]
        at = micros(self._clock())
        with self._unit:
            last = self._newest()
            rows = [(last + place, at, event) for place, event in enumerate(encoded, 1)]
            self._held.extend(rows)
            self._last = last + len(rows)
            return [str(number) for number, _, _ in rows]

    def read(self, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Events behind that number, in order."""
        with self._unit:
            self.flush()
            rows = self._unit.db.execute(
                "SELECT seq, event FROM feed WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
            )
            return [(seq, msgspec.json.decode(event)) for seq, event in rows.fetchall()]

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
