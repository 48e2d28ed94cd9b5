"""Notifications of the node.

The commit that ends a run writes them, and they stay until delivery.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.ports.clock import Clock
from punctual.engine.ports.notifications import Notification
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import Codec, from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

_NOTIFICATION_CODEC = Codec(Notification)
UNREADABLE_RETRY_DELAY = timedelta(hours=1)


class PendingNotification(NamedTuple):
    row_number: int
    notification: Notification
    tries: int


class SqliteNotifications:
    """Stores undelivered notifications.

    The time of the next one is cached, because most nodes have none.
    """

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._transaction = transaction
        self._clock = clock
        self._is_next_at_known = False
        self._next_at: datetime | None = None

    def put(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        now = self._clock()
        rows = [
            (
                notification.tenant,
                notification.id,
                to_micros(now),
                _NOTIFICATION_CODEC.encode(notification),
            )
            for notification in notifications
        ]
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                "INSERT OR IGNORE INTO notices (tenant, notice_id, next_at, notice) "
                "VALUES (?, ?, ?, ?)",
                rows,
            )
            self._is_next_at_known = False
        return [True] * len(notifications)

    def next_at(self, excluded: Collection[int]) -> datetime | None:
        """Return when the next notification is due, without the rows `excluded`.

        Their delivery is in progress.
        """
        if not self._is_next_at_known:
            with self._transaction:
                (next_micros,) = self._transaction.db.execute(
                    f"SELECT min(next_at) FROM notices WHERE id NOT IN ({_placeholders(excluded)})",
                    tuple(excluded),
                ).fetchone()
            self._next_at, self._is_next_at_known = (
                None if next_micros is None else from_micros(next_micros),
                True,
            )
        return self._next_at

    def due(
        self, now: datetime, limit: int, excluded: Collection[int]
    ) -> list[PendingNotification]:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT id, notice, tries FROM notices WHERE next_at <= ? "
                f"AND id NOT IN ({_placeholders(excluded)}) ORDER BY next_at, id LIMIT ?",
                (to_micros(now), *excluded, limit),
            ).fetchall()
            notifications = [self._read(now, *row) for row in rows]
        self._is_next_at_known = False
        return [notification for notification in notifications if notification is not None]

    def _read(
        self, now: datetime, row_number: int, encoded: bytes, tries: int
    ) -> PendingNotification | None:
        """Return the notification, or None if it is unreadable.

        An unreadable row is postponed, so that it delays no other.
        """
        try:
            return PendingNotification(row_number, _NOTIFICATION_CODEC.decode(encoded), int(tries))
        except DECODING_ERRORS as error:
            self._transaction.damage.note("notices", (row_number,), error)
            self.postpone(row_number, 0, now + UNREADABLE_RETRY_DELAY)
            return None

    def postpone(self, row_number: int, tries: int, retry_at: datetime) -> None:
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE notices SET tries = ?, next_at = ? WHERE id = ?",
                (tries, to_micros(retry_at), row_number),
            )
        self._is_next_at_known = False

    def make_due_by(self, latest_at: datetime) -> None:
        """Make waiting notifications due at `latest_at` or earlier."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "UPDATE notices SET next_at = ? WHERE next_at > ?",
                (to_micros(latest_at), to_micros(latest_at)),
            )
        self._is_next_at_known = False

    def remove(self, row_number: int) -> None:
        """Remove a notification that was delivered or abandoned."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute("DELETE FROM notices WHERE id = ?", (row_number,))
        self._is_next_at_known = False

    def on_rollback(self) -> None:
        self._is_next_at_known = False


def _placeholders(row_numbers: Collection[int]) -> str:
    return ", ".join("?" * len(row_numbers))
