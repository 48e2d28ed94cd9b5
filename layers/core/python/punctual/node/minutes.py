"""Counters for each minute of the last hour. A restart keeps them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from punctual.node.sqlite.codec import Codec, from_minute, to_minute
from punctual.node.sqlite.transaction import Transaction


class Minute(msgspec.Struct, rename={"lateness_counts": "late", "max_lateness_us": "latest"}):
    """Counters of one minute.

    `lateness_counts` counts first starts by the step of their lateness in microseconds.
    """

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    lateness_counts: dict[int, int] = {}
    max_lateness_us: int = 0  # microseconds


_MINUTE_CODEC = Codec(Minute, packed=True)


class SqliteMinutes:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def load_since(self, first: datetime) -> dict[datetime, Minute]:
        """Return the minutes from `first` on. An unreadable minute counts as empty."""
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT minute, counted FROM minutes WHERE minute >= ?", (to_minute(first),)
            ).fetchall()
        minutes = {}
        for minute_number, encoded in rows:
            try:
                minutes[from_minute(minute_number)] = _MINUTE_CODEC.decode(encoded)
            except msgspec.MsgspecError:
                continue  # It holds only statistics, which must not stop a start.
        return minutes

    def save(self, counted: Mapping[datetime, Minute], first: datetime) -> None:
        """Write these minutes, and remove all minutes before `first`."""
        rows = [
            (to_minute(minute_at), _MINUTE_CODEC.encode(counts))
            for minute_at, counts in counted.items()
        ]
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany("INSERT OR REPLACE INTO minutes VALUES (?, ?)", rows)
            self._transaction.db.execute(
                "DELETE FROM minutes WHERE minute < ?", (to_minute(first),)
            )
