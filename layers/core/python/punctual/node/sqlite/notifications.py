"""Notifications of the node.

The commit that ends a run writes them, and they stay until delivery.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.ports.clock import Clock
from punctual.engine.ports.notifications import Notification
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import Codec, micros, moment
from punctual.node.sqlite.transaction import Transaction

_NOTICE = Codec(Notification)
SELDOM = timedelta(hours=1)


class Waiting(NamedTuple):
    number: int
    notice: Notification
    tries: int


class SqliteNotifications:
    """Stores undelivered notifications.

    The time of the next one is cached, because most nodes have none.
    """

    def __init__(self, unit: Transaction, clock: Clock) -> None:
        self._unit = unit
        self._clock = clock
        self._known = False
        self._next_at: datetime | None = None

    def put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        now = self._clock()
        rows = [(one.tenant, one.id, micros(now), _NOTICE.encode(one)) for one in notices]
        with self._unit:
            self._unit.begin()
            self._unit.db.executemany(
                "INSERT OR IGNORE INTO notices (tenant, notice_id, next_at, notice) "
                "VALUES (?, ?, ?, ?)",
                rows,
            )
            self._known = False
        return [True] * len(notices)

    def next_at(self, but: Collection[int]) -> datetime | None:
        """Return when the next notification is due, without those of `but`.

        Their delivery is in progress.
        """
        if not self._known:
            with self._unit:
                (found,) = self._unit.db.execute(
                    f"SELECT min(next_at) FROM notices WHERE id NOT IN ({_marks(but)})",
                    tuple(but),
                ).fetchone()
            self._next_at, self._known = None if found is None else moment(found), True
        return self._next_at

    def due(self, now: datetime, most: int, but: Collection[int]) -> list[Waiting]:
        with self._unit:
            rows = self._unit.db.execute(
                "SELECT id, notice, tries FROM notices WHERE next_at <= ? "
                f"AND id NOT IN ({_marks(but)}) ORDER BY next_at, id LIMIT ?",
                (micros(now), *but, most),
            ).fetchall()
            found = [self._read(now, *row) for row in rows]
        self._known = False
        return [one for one in found if one is not None]

    def _read(self, now: datetime, number: int, notice: bytes, tries: int) -> Waiting | None:
        """Return the notification, or None if it is unreadable.

        An unreadable row is postponed, so that it delays no other.
        """
        try:
            return Waiting(number, _NOTICE.decode(notice), int(tries))
        except DECODING as error:
            self._unit.damage.note("notices", (number,), error)
            self.again(number, 0, now + SELDOM)
            return None

    def again(self, number: int, tries: int, at: datetime) -> None:
        with self._unit:
            self._unit.begin()
            self._unit.db.execute(
                "UPDATE notices SET tries = ?, next_at = ? WHERE id = ?",
                (tries, micros(at), number),
            )
        self._known = False

    def due_by(self, at: datetime) -> None:
        """Make waiting notifications due by `at` at the latest."""
        with self._unit:
            self._unit.begin()
            self._unit.db.execute(
                "UPDATE notices SET next_at = ? WHERE next_at > ?", (micros(at), micros(at))
            )
        self._known = False

    def settle(self, number: int) -> None:
        """Remove a notification that was delivered or abandoned."""
        with self._unit:
            self._unit.begin()
            self._unit.db.execute("DELETE FROM notices WHERE id = ?", (number,))
        self._known = False

    def flush(self) -> None:
        pass

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._known = False


def _marks(but: Collection[int]) -> str:
    return ", ".join("?" * len(but))
