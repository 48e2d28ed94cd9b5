"""Deletion of payloads and definitions of jobs that do not exist.

A crash between upload and job state leaves them, and so does a lost stream record.
"""

from collections.abc import Sequence
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.jobs.cleanup import JobData, JobDataRows
from punctual.aws.s3 import S3Blobs
from punctual.domain.durations import RECEIPT_RETENTION
from punctual.engine.commands.definitions_store import PAYLOAD_PREFIX, job_of_payload
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey

MIN_ORPHANED_PAYLOAD_AGE = 2 * RECEIPT_RETENTION
"""Minimum age of an orphan.

While its receipt is kept, a repeated request creates the job under the same id.
"""


class RemovedOrphans(NamedTuple):
    payloads: int
    jobs: Sequence[JobKey]
    cursor: str | None  # the key to continue after; None at the end


class Orphans:
    def __init__(self, blobs: S3Blobs, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._blobs = blobs
        self._dynamo = dynamo
        self._table = table
        self._job_data = JobData(dynamo, table)
        self._clock = clock

    def remove(self, after: str | None) -> RemovedOrphans:
        """Remove the orphans of one page of payloads.

        Rows are deleted first: while a payload exists, the next walk finds its job again.
        """
        stored_before = self._clock() - MIN_ORPHANED_PAYLOAD_AGE
        page = self._blobs.list_page(PAYLOAD_PREFIX, after)
        names_by_job: dict[JobKey, list[str]] = {}
        for blob in page.blobs:
            key = job_of_payload(blob.name)
            if key is not None and blob.stored_at < stored_before:
                names_by_job.setdefault(key, []).append(blob.name)
        jobs = self._without_state(list(names_by_job))
        job_data = self._dynamo.pool.map(self._job_data.find, jobs)
        rows = [row for data in job_data for row in data.rows]
        if rows:
            self._job_data.delete(JobDataRows(rows, ()))
        payload_names = [name for key in jobs for name in names_by_job[key]]
        if payload_names:
            self._blobs.delete(payload_names)
        return RemovedOrphans(len(payload_names), jobs, page.cursor)

    def _without_state(self, jobs: Sequence[JobKey]) -> list[JobKey]:
        """Return the jobs that have no state row at all.

        An unreadable, blank or expired row still protects its job's data.
        """
        jobs_by_row_key = {keys.state_key(*key): key for key in jobs}
        existing = self._dynamo.read(self._table, list(jobs_by_row_key)) if jobs_by_row_key else {}
        return [key for row_key, key in jobs_by_row_key.items() if row_key not in existing]
