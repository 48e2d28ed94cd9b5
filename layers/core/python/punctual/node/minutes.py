"""Counters for each minute of the last hour, stored so that a restart keeps them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from punctual.node.sqlite.codec import Packed, minute, of_minute
from punctual.node.sqlite.transaction import Transaction


class Minute(msgspec.Struct):
    """Counters of one minute.

    `late` counts first starts by the step of their lateness in microseconds.
    """

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    late: dict[int, int] = {}
    latest: int = 0  # microseconds


_MINUTE = Packed(Minute)


class SqliteMinutes:
    def __init__(self, unit: Transaction) -> None:
        self._unit = unit

    def since(self, first: datetime) -> dict[datetime, Minute]:
        """Return the minutes from `first` on. An unreadable minute counts as empty."""
        with self._unit:
            rows = self._unit.db.execute(
                "SELECT minute, counted FROM minutes WHERE minute >= ?", (minute(first),)
            ).fetchall()
        found = {}
        for number, counted in rows:
            try:
                found[of_minute(number)] = _MINUTE.decode(counted)
            except msgspec.MsgspecError:
                continue  # It holds only statistics, which must not stop a start.
        return found

    def put(self, counted: Mapping[datetime, Minute], first: datetime) -> None:
        """Write these minutes, and remove all minutes before `first`."""
        rows = [(minute(at), _MINUTE.encode(one)) for at, one in counted.items()]
        with self._unit:
            self._unit.begin()
            self._unit.db.executemany("INSERT OR REPLACE INTO minutes VALUES (?, ?)", rows)
            self._unit.db.execute("DELETE FROM minutes WHERE minute < ?", (minute(first),))
