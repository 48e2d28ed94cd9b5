"""The node's event stream. `event` tasks publish numbered events in the commit of their runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from punctual.engine.ports.clock import Clock
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import to_micros
from punctual.node.sqlite.transaction import Transaction

MAX_EVENTS_PER_ROW = 64  # events in a row
MAX_EVENT_ROW_BYTES = 65_536  # bytes, after which a row is full
_FeedRow = tuple[int, int, bytes]
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode


class SqliteFeed:
    """Stores events by number, which is also their id.

    Numbers only grow, because the newest row is never removed.

    A row holds a list of events that were published together, under the number of the last.
    """

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction = transaction
        self._clock = clock
        self._encode = msgspec.json.Encoder().encode
        self.pending: list[_FeedRow] = []
        self._last_number: int | None = None

    def publish(self, events: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        encoded = [self._encode(event) for event in events]
        now_micros = to_micros(self._clock())
        with self._transaction:
            last_number = self._load_last_number()
            self.pending.extend(_feed_rows(last_number, now_micros, encoded))
            self._last_number = last_number + len(encoded)
            return [str(number) for number in range(last_number + 1, self._last_number + 1)]

    def read(self, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Return at most `limit` events with numbers above `after`, in order."""
        numbered_result: list[tuple[int, dict[str, Any]]] = []
        with self._transaction:
            self.flush()
            rows = self._transaction.db.execute(
                "SELECT seq, event FROM feed WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
            )
            for last_number, encoded in rows:
                try:
                    row_events = _decode(encoded)
                except DECODING_ERRORS as error:
                    self._transaction.damage.note("feed", (last_number,), error)
                    continue
                numbered = enumerate(row_events, last_number - len(row_events) + 1)
                numbered_result.extend(
                    (number, event) for number, event in numbered if number > after
                )
                if len(numbered_result) >= limit:
                    break
            rows.close()
            return numbered_result[:limit]

    def _load_last_number(self) -> int:
        if self._last_number is None:
            (last_number,) = self._transaction.db.execute(
                "SELECT coalesce(max(seq), 0) FROM feed"
            ).fetchone()
            self._last_number = int(last_number)
        return self._last_number

    def flush(self) -> None:
        if self.pending:
            self._transaction.begin()
            self._transaction.db.executemany("INSERT INTO feed VALUES (?, ?, ?)", self.pending)
            self.pending.clear()

    def on_rollback(self) -> None:
        self.pending.clear()
        self._last_number = None


def _feed_rows(last_number: int, now_micros: int, events: Sequence[bytes]) -> Iterator[_FeedRow]:
    """Yield rows for events numbered from `last_number` + 1. The size of a row is bounded."""
    row_events: list[bytes] = []
    size = 0
    for event in events:
        if len(row_events) == MAX_EVENTS_PER_ROW or size + len(event) > MAX_EVENT_ROW_BYTES:
            if row_events:
                yield last_number, now_micros, b"[%b]" % b",".join(row_events)
            row_events, size = [], 0
        row_events.append(event)
        size += len(event)
        last_number += 1
    if row_events:
        yield last_number, now_micros, b"[%b]" % b",".join(row_events)
