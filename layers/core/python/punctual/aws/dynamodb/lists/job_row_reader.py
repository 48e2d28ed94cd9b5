"""Reads the rows of a tenant's jobs, newest first, from all slots at once.

These reads are eventually consistent, because the rows follow their job states anyway.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, check_layout, prefetch
from punctual.aws.dynamodb.lists.job_row import JobRow, unpack_row
from punctual.aws.dynamodb.lists.job_rows import (
    HELD_ATTR,
    is_expired_item,
    is_failing_item,
    job_row_key,
    outcomes_of,
)
from punctual.aws.dynamodb.lists.keys import ListKind, list_partitions
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import RecentRun
from punctual.engine.ports.rows import JobKey

MAX_PAGES_PER_SLOT = 4  # pages of 1 MB that one call reads of a slot
FULL_PAGE_ROWS = 10_000  # more rows than 1 MB holds, so that DynamoDB ends a page at 1 MB


class ListedJob(NamedTuple):
    job_id: str
    row: JobRow
    is_failing: bool = False  # whether the job has an open failure


class JobRowPage(NamedTuple):
    """Ids of jobs, newest first. `before` is the cursor of the next page, None at the end."""

    job_ids: Sequence[str]
    before: str | None


class JobRowReader:
    def __init__(self, dynamo: DynamoClient, table: str, slots: int, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slots = slots
        self._clock = clock

    def page(self, tenant: str, before: str | None, limit: int) -> JobRowPage:
        """Return the ids of the newest jobs with an id below `before`."""
        page_size = limit // self._slots * 2 + 4
        slot_rows = [
            chain.from_iterable(items for items, _ in self._pages(pk, before, page_size))
            for pk in list_partitions(tenant, ListKind.JOBS, self._slots)
        ]
        job_ids = list(islice(self._merged_ids(slot_rows), limit + 1))
        return JobRowPage(job_ids[:limit], job_ids[limit - 1] if len(job_ids) > limit else None)

    def scan(self, tenant: str, before: str | None = None) -> Iterator[ListedJob | str]:
        """Yield jobs, newest first, as far as one call may read.

        A text comes last if more jobs follow: the id from which the next call goes on.
        """
        slots = [
            self._bounded_slot(pk, before)
            for pk in list_partitions(tenant, ListKind.JOBS, self._slots)
        ]
        last_id = ""
        for job_id, listed in heapq.merge(
            *self._dynamo.pool.map(prefetch, slots), key=lambda entry: entry[0], reverse=True
        ):
            if listed is None:
                yield job_id
                return
            if job_id != last_id:
                yield listed
            last_id = job_id

    def read_all(self, tenant: str) -> Sequence[ListedJob] | None:
        """Return all jobs of a tenant in any order, or None if they are too many for one call."""
        slots = self._dynamo.pool.map(
            lambda pk: list(self._bounded_slot(pk, None)),
            list_partitions(tenant, ListKind.JOBS, self._slots),
        )
        listed = {job_id: job for slot in slots for job_id, job in slot}
        jobs = [job for job in listed.values() if job is not None]
        return jobs if len(jobs) == len(listed) else None

    def held_jobs(self, tenant: str, limit: int) -> Sequence[JobKey]:
        """Return up to `limit` jobs with a run that an executor holds, as far as a call reads."""
        filter_arguments = {
            "FilterExpression": "attribute_exists(#held)",
            "ExpressionAttributeNames": {"#held": HELD_ATTR},
        }

        def read_slot(pk: str) -> list[Item]:
            pages = islice(
                self._pages(pk, None, FULL_PAGE_ROWS, filter_arguments), MAX_PAGES_PER_SLOT
            )
            return [item for items, _ in pages for item in items]

        slots = self._dynamo.pool.map(
            read_slot, list_partitions(tenant, ListKind.JOBS, self._slots)
        )
        return [JobKey(tenant, job_id) for job_id in islice(self._merged_ids(slots), limit)]

    def recent_runs(self, job_keys: Sequence[JobKey]) -> Mapping[JobKey, Sequence[RecentRun]]:
        """Return the newest ended runs of these jobs. A job that no row shows yet is left out."""
        now = self._clock()
        row_keys = {job_row_key(key, self._slots): key for key in job_keys}
        items = self._dynamo.read(self._table, list(row_keys))
        return {
            row_keys[row_key]: [
                RecentRun(outcome.run_id, outcome.status, outcome.scheduled_at, outcome.duration)
                for outcome in outcomes_of(item)
            ]
            for row_key, item in items.items()
            if not is_expired_item(item, now)
        }

    def _merged_ids(self, slots: Sequence[Any]) -> Iterator[str]:
        """Yield the ids of the rows of all slots, newest first, each once."""
        now = self._clock()
        merged = heapq.merge(
            *self._dynamo.pool.map(lambda rows: prefetch(iter(rows)), slots),
            key=_id_of,
            reverse=True,
        )
        last_id = ""
        for item in merged:
            job_id = _id_of(item)
            if job_id != last_id and not is_expired_item(item, now):
                yield job_id
            last_id = job_id

    def _bounded_slot(self, pk: str, before: str | None) -> Iterator[tuple[str, ListedJob | None]]:
        """Yield the jobs of a slot. The last id stands without a job if more rows follow."""
        now = self._clock()
        job_id = ""
        for number, (items, has_more) in enumerate(
            self._pages(pk, before, FULL_PAGE_ROWS), start=1
        ):
            for item in items:
                job_id = _id_of(item)
                if not is_expired_item(item, now):
                    check_layout(item)
                    row = unpack_row(item[keys.DATA_ATTR]["B"])
                    yield job_id, ListedJob(job_id, row, is_failing_item(item))
            if has_more and number == MAX_PAGES_PER_SLOT:
                yield job_id, None
                return

    def _pages(
        self,
        pk: str,
        before: str | None,
        page_size: int,
        filter_arguments: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[Sequence[Item], bool]]:
        high = None if before is None else keys.escape(before)
        key_range = KeyRange(pk, high=high, excludes_high=True, newest_first=True)
        return self._dynamo.pages(
            self._table, key_range, page_size, filter_arguments, is_consistent=False
        )


def _id_of(item: Item) -> str:
    return keys.unescape(item[keys.SK]["S"])
