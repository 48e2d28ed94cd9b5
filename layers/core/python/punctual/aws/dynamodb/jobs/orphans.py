"""Deletion of payloads and definitions of jobs that do not exist.

A crash between upload and job state leaves them, and so does a lost stream record.
"""

from collections.abc import Sequence
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.jobs.cleanup import JobData, Left
from punctual.aws.s3 import S3Blobs
from punctual.domain.durations import RECEIPT
from punctual.engine.commands.definitions_store import PAYLOADS, job_of
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import Key

OLD = 2 * RECEIPT
"""Minimum age of an orphan.

While its receipt is kept, a repeated request creates the job under the same id.
"""


class Removed(NamedTuple):
    payloads: int
    jobs: Sequence[Key]
    cursor: str | None  # the key to continue after; None at the end


class Orphans:
    def __init__(self, blobs: S3Blobs, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._blobs = blobs
        self._dynamo = dynamo
        self._table = table
        self._belongings = JobData(dynamo, table)
        self._clock = clock

    def remove(self, after: str | None) -> Removed:
        """Remove the orphans of one page of payloads.

        Rows are deleted first: while a payload exists, the next walk finds its job again.
        """
        latest = self._clock() - OLD
        page = self._blobs.listed(PAYLOADS, after)
        names: dict[Key, list[str]] = {}
        for blob in page.blobs:
            key = job_of(blob.name)
            if key is not None and blob.stored_at < latest:
                names.setdefault(key, []).append(blob.name)
        jobs = self._without_head(list(names))
        left = self._dynamo.crew.map(self._belongings.of, jobs)
        rows = [row for one in left for row in one.rows]
        if rows:
            self._belongings.forget(Left(rows, ()))
        gone = [name for key in jobs for name in names[key]]
        if gone:
            self._blobs.delete(gone)
        return Removed(len(gone), jobs, page.cursor)

    def _without_head(self, jobs: Sequence[Key]) -> list[Key]:
        """Return the jobs that have no state row at all.

        An unreadable, blank or expired row still protects its job's data.
        """
        rows = {keys.head(*key): key for key in jobs}
        found = self._dynamo.read(self._table, list(rows)) if rows else {}
        return [key for row, key in rows.items() if row not in found]
