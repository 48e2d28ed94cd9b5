"""Counts of jobs and runs by status, kept by the commits that change them."""

from collections import Counter
from collections.abc import Mapping

from punctual.node.sqlite.transaction import Transaction

JOB, RUN = "job", "run"


class Counts:
    """Collects changes of counts.

    It is flushed last, because other parts note changes while they flush.
    """

    def __init__(self, unit: Transaction) -> None:
        self._unit = unit
        self.changes: Counter[tuple[str, str, str]] = Counter()

    def of(self, tenant: str, kind: str) -> Mapping[str, int]:
        """Return the counts of the stored rows. Expired rows count until they are removed."""
        found = self._unit.db.execute(
            "SELECT status, n FROM counts WHERE tenant = ? AND kind = ? AND n > 0", (tenant, kind)
        )
        return dict(found.fetchall())

    def flush(self) -> None:
        rows = [(*key, n) for key, n in self.changes.items() if n]
        self.changes.clear()
        if rows:
            self._unit.begin()
            self._unit.db.executemany(
                "INSERT INTO counts (tenant, kind, status, n) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET n = n + excluded.n",
                rows,
            )

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self.changes.clear()
