"""Starts and start requests of limited tenants, stored for a minute. So a restart keeps them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import micros, moment
from punctual.node.sqlite.transaction import Transaction

START, ORDER = "start", "order"
MINUTE = timedelta(minutes=1)  # no window is longer


class SqliteStarts:
    """Stores starts at once, in the transaction of the starts.

    One row counts all starts of a moment.
    """

    def __init__(self, unit: Transaction) -> None:
        self._unit = unit

    def add(self, kind: str, tenant: str, at: datetime, count: int, gone: datetime) -> None:
        """Count starts at `at`, and remove the tenant's starts up to `gone`."""
        with self._unit:
            self._unit.begin()
            self._unit.db.execute(
                "INSERT INTO starts (kind, tenant, at, n) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (kind, tenant, at) DO UPDATE SET n = n + excluded.n",
                (kind, tenant, micros(at), count),
            )
            self._unit.db.execute(
                "DELETE FROM starts WHERE kind = ? AND tenant = ? AND at <= ?",
                (kind, tenant, micros(gone)),
            )

    def since(self, kind: str, tenant: str, at: datetime) -> Sequence[datetime]:
        """Return the times after `at` in order, one for each start."""
        with self._unit:
            rows = self._unit.db.execute(
                "SELECT at, n FROM starts WHERE kind = ? AND tenant = ? AND at > ? ORDER BY at",
                (kind, tenant, micros(at)),
            ).fetchall()
        found: list[datetime] = []
        for number, count in rows:
            try:
                found += [moment(number)] * count
            except DECODING as error:
                self._unit.damage.note("starts", (kind, tenant, number), error)
        return found
