"""Finds payloads without a row.

They remain from submissions and start requests that were interrupted or rejected.

A payload is stored before the row that names it, so that no row lacks its payload.
"""

from datetime import datetime, timedelta

from punctual.domain.run import Run, WaitingRun
from punctual.engine.commands.definitions_store import job_of
from punctual.engine.ports.rows import Key
from punctual.node.files.blobs import FileBlobs, Place
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.state_rows import HEAD
from punctual.node.sqlite.transaction import Transaction

OLD = timedelta(hours=1)  # a request that stored a payload has ended long before
AT_ONCE = 100  # payloads of one step, which takes a few milliseconds


class Orphans:
    def __init__(self, unit: Transaction, blobs: FileBlobs) -> None:
        self._unit = unit
        self._blobs = blobs

    def remove(self, after: Place | None, now: datetime) -> tuple[int, Place | None]:
        """Remove the orphans among some payloads.

        Return how many, and the place to continue from.
        """
        found, place = self._blobs.payloads(after, AT_ONCE)
        old = [one.name for one in found if one.stored_at < now - OLD]
        with self._unit:
            gone = [name for name in old if not self._is_named(name)]
        self._blobs.delete(gone)
        return len(gone), place

    def _is_named(self, name: str) -> bool:
        key = job_of(name)
        if key is None:
            return True
        given_by = name.rpartition("/")[2]
        return (
            self._has("bodies", "ref", key, given_by)
            or self._has("runs", "run_id", key, given_by)
            or self._is_alive(key, given_by)
        )

    def _has(self, table: str, column: str, key: Key, given_by: str) -> bool:
        found = self._unit.db.execute(
            f"SELECT 1 FROM {table} WHERE tenant = ? AND job_id = ? AND {column} = ?",
            (*key, given_by),
        )
        return found.fetchone() is not None

    def _is_alive(self, key: Key, run_id: str) -> bool:
        """Return whether the job state has the run.

        An unreadable state counts as having it, so that no needed payload is removed.
        """
        row = self._unit.db.execute(
            "SELECT head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return False
        try:
            head = HEAD.decode(row[0])
        except DECODING:
            return True
        runs: list[Run | WaitingRun] = [*head.runs, *head.line, *head.ended]
        return any(run.run_id == run_id for run in runs)
