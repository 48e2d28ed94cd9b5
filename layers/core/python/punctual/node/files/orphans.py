"""Finds payloads without a row.

They remain from submissions and start requests that were interrupted or rejected.

A payload is stored before the row that names it, so that no row lacks its payload.
"""

from datetime import datetime, timedelta

from punctual.domain.run import Run, WaitingRun
from punctual.engine.commands.definitions_store import job_of_payload
from punctual.engine.ports.rows import JobKey
from punctual.node.files.blobs import FileBlobs, PayloadCursor
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.state_rows import STATE_CODEC
from punctual.node.sqlite.transaction import Transaction

MIN_ORPHAN_AGE = timedelta(hours=1)  # a request that stored a payload has ended long before
PAYLOAD_PAGE_SIZE = 100  # payloads of one step, which takes a few milliseconds


class Orphans:
    def __init__(self, transaction: Transaction, blobs: FileBlobs) -> None:
        self._transaction = transaction
        self._blobs = blobs

    def remove(
        self, cursor: PayloadCursor | None, now: datetime
    ) -> tuple[int, PayloadCursor | None]:
        """Remove the orphans among some payloads.

        Return how many, and the cursor to continue from.
        """
        payloads, next_cursor = self._blobs.list_payloads(cursor, PAYLOAD_PAGE_SIZE)
        old_names = [
            payload.name for payload in payloads if payload.stored_at < now - MIN_ORPHAN_AGE
        ]
        with self._transaction:
            orphan_names = [name for name in old_names if not self._has_owner(name)]
        self._blobs.delete(orphan_names)
        return len(orphan_names), next_cursor

    def _has_owner(self, name: str) -> bool:
        key = job_of_payload(name)
        if key is None:
            return True
        owner_id = name.rpartition("/")[2]
        return (
            self._has_row("bodies", "ref", key, owner_id)
            or self._has_row("runs", "run_id", key, owner_id)
            or self._is_in_job_state(key, owner_id)
        )

    def _has_row(self, table: str, column: str, key: JobKey, owner_id: str) -> bool:
        rows = self._transaction.db.execute(
            f"SELECT 1 FROM {table} WHERE tenant = ? AND job_id = ? AND {column} = ?",
            (*key, owner_id),
        )
        return rows.fetchone() is not None

    def _is_in_job_state(self, key: JobKey, run_id: str) -> bool:
        """Return whether the job state has the run.

        An unreadable state counts as having it, so that no needed payload is removed.
        """
        row = self._transaction.db.execute(
            "SELECT head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return False
        try:
            state = STATE_CODEC.decode(row[0])
        except DECODING_ERRORS:
            return True
        runs: list[Run | WaitingRun] = [*state.runs, *state.wait_queue, *state.unrecorded]
        return any(run.run_id == run_id for run in runs)
