"""Starts and start requests of limited tenants, stored for a minute. So a restart keeps them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

START_KIND, START_REQUEST_KIND = "start", "order"
START_WINDOW = timedelta(minutes=1)  # no window is longer


class SqliteStarts:
    """Stores starts at once, in the transaction of the starts.

    One row counts all starts of a moment.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def add(
        self, kind: str, tenant: str, started_at: datetime, count: int, remove_until: datetime
    ) -> None:
        """Count starts at `started_at`, and remove those of the tenant up to `remove_until`."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute(
                "INSERT INTO starts (kind, tenant, at, n) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, tenant, at) DO UPDATE SET n = n + excluded.n",
                (kind, tenant, to_micros(started_at), count),
            )
            self._transaction.db.execute(
                "DELETE FROM starts WHERE kind = ? AND tenant = ? AND at <= ?",
                (kind, tenant, to_micros(remove_until)),
            )

    def times_since(self, kind: str, tenant: str, after: datetime) -> Sequence[datetime]:
        """Return the times after `after` in order, one for each start."""
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT at, n FROM starts WHERE kind = ? AND tenant = ? AND at > ? ORDER BY at",
                (kind, tenant, to_micros(after)),
            ).fetchall()
        times: list[datetime] = []
        for time_micros, count in rows:
            try:
                times += [from_micros(time_micros)] * count
            except DECODING_ERRORS as error:
                self._transaction.damage.note("starts", (kind, tenant, time_micros), error)
        return times
