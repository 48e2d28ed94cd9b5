"""Counts of jobs and runs by status, kept by the commits that change them."""

from collections import Counter
from collections.abc import Mapping

from punctual.node.sqlite.transaction import Transaction

JOB_KIND, RUN_KIND = "job", "run"


class Counts:
    """Collects changes of counts.

    It is flushed last, because other parts note changes while they flush.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.changes: Counter[tuple[str, str, str]] = Counter()

    def by_status(self, tenant: str, kind: str) -> Mapping[str, int]:
        """Return the counts of the stored rows. Expired rows count until they are removed."""
        rows = self._transaction.db.execute(
            "SELECT status, n FROM counts WHERE tenant = ? AND kind = ? AND n > 0", (tenant, kind)
        )
        return dict(rows.fetchall())

    def flush(self) -> None:
        rows = [(*key, change) for key, change in self.changes.items() if change]
        self.changes.clear()
        if rows:
            self._transaction.begin()
            self._transaction.db.executemany(
                "INSERT INTO counts (tenant, kind, status, n) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET n = n + excluded.n",
                rows,
            )

    def on_rollback(self) -> None:
        self.changes.clear()
