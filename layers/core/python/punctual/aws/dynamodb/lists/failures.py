"""The open failures of jobs: one row for each job, with all of its kinds of errors.

The list row of a job has a mark of open failures. So a success knows without a read whether there
is something to close. The mark is set before the row, and taken away after it. It carries the
version of the job state, so that a write that takes effect late changes no later mark.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.aws.dynamodb.lists.job_rows import (
    FAILURES_ATTR,
    failure_mark,
    is_expired_item,
    is_failing_item,
)
from punctual.aws.dynamodb.lists.keys import (
    ListKind,
    list_partition,
    list_partitions,
    list_slot_of,
)
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.domain.failures import (
    Acknowledgement,
    EndedRun,
    Failure,
    after_run,
    parse_failure_id,
)
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.failures import FailureCounts, FailurePage
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.cursor import time_in_cursor

MAX_FAILURE_TRIES = 5  # writes of one row against other writers
FAILURE_PAGE_ROWS = 1_000  # rows of one read
MAX_FAILURE_READS = 4  # of each slot, for one answer
BY_JOB = "job"  # begins the cursor of a list in the order of the jobs
CLOSED_ROW_RETENTION = timedelta(hours=1)  # an empty row knows which changes it includes

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Failure]).decode


class FailureChange(NamedTuple):
    """What one version of a job state says about the failures of its job."""

    version: int
    runs: Sequence[EndedRun] = ()
    is_cancelled: bool = False
    expires_at: datetime | None = None  # of the job


class _Row(NamedTuple):
    version: int = 0
    failures: Sequence[Failure] = ()
    expires: int | None = None


class _Slot(NamedTuple):
    """Failures of one slot. Rows before the job `read_until` are not read; empty: all are."""

    failures: Sequence[Failure]
    read_until: str


class DynamoFailures:
    def __init__(self, dynamo: DynamoClient, table: str, slots: int, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slots = slots
        self._clock = clock

    def page(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> FailurePage:
        """Return a page.

        The failure that happened last comes first. Where a tenant has too many rows for one
        read, the failures come in the order of their jobs instead, newest first.
        """
        if after is not None and after[0] == BY_JOB:
            return self._page_by_job(tenant, limit, after)
        failures, is_complete = self._read_all(tenant)
        if not is_complete:
            return self._page_by_job(tenant, limit, None)
        bound = None if after is None else (time_in_cursor(after[0]), *after[1:])
        coming = sorted(
            (failure for failure in failures if bound is None or _time_order(failure) < bound),
            key=_time_order,
            reverse=True,
        )
        shown = coming[:limit]
        if len(coming) <= limit:
            return FailurePage(shown, None)
        last = shown[-1]
        return FailurePage(shown, (last.last_at.isoformat(), last.job_id, last.kind))

    def _page_by_job(self, tenant: str, limit: int, after: tuple[str, ...] | None) -> FailurePage:
        """Read each slot from the cursor on. Show what lies before the end of every slot."""
        bound = None if after is None else after[1:]
        slots = self._read_slots(tenant, None if bound is None else bound[0])
        read_until = max((slot.read_until for slot in slots if slot.read_until), default="")
        coming = sorted(
            (
                failure
                for slot in slots
                for failure in slot.failures
                if failure.job_id >= read_until and (bound is None or _job_order(failure) < bound)
            ),
            key=_job_order,
            reverse=True,
        )
        shown = coming[:limit]
        if len(coming) > limit:
            return FailurePage(shown, (BY_JOB, *_job_order(shown[-1])))
        return FailurePage(shown, (BY_JOB, read_until, "") if read_until else None)

    def of_job(self, key: JobKey) -> Sequence[Failure]:
        return _parse(self._read(key), self._clock()).failures

    def find(self, tenant: str, failure_id: str) -> Failure | None:
        key = JobKey(tenant, parse_failure_id(failure_id)[0])
        row = _parse(self._read(key), self._clock())
        return _find(row, failure_id)

    def acknowledge(
        self, tenant: str, failure_id: str, acknowledgement: Acknowledgement
    ) -> Failure | None:
        key = JobKey(tenant, parse_failure_id(failure_id)[0])
        item, now = self._read(key), self._clock()
        for _ in range(MAX_FAILURE_TRIES):
            row = _parse(item, now)
            open_failure = _find(row, failure_id)
            if open_failure is None:
                return None
            failure = replace(open_failure, acknowledged=acknowledgement)
            others = [other for other in row.failures if other is not open_failure]
            changed = row._replace(failures=[*others, failure])
            failed = self._put(key, changed, item, now)
            if failed is None:
                return failure
            item = failed
        raise _contended()

    def counts(self, tenant: str) -> FailureCounts:
        failures, is_complete = self._read_all(tenant)
        acknowledged = [
            failure.first_at for failure in failures if failure.acknowledged is not None
        ]
        unacknowledged = [failure.first_at for failure in failures if failure.acknowledged is None]
        return FailureCounts(
            len(acknowledged),
            len(unacknowledged),
            min(acknowledged, default=None),
            min(unacknowledged, default=None),
            has_more=not is_complete,
        )

    def apply(self, changes_by_job: Mapping[JobKey, Sequence[FailureChange]]) -> None:
        """Bring the rows of these jobs up to date. Changes that a row includes are left out."""
        items = self._dynamo.read(self._table, [self._row_key(key) for key in changes_by_job])
        self._dynamo.pool.map(
            lambda key: self._apply(key, changes_by_job[key], items.get(self._row_key(key), {})),
            list(changes_by_job),
        )

    def _apply(self, key: JobKey, changes: Sequence[FailureChange], item: Item) -> None:
        now = self._clock()
        for _ in range(MAX_FAILURE_TRIES):
            row = _parse(item, now)
            changed = _after(key, row, changes)
            opens = bool(changed.failures) and not row.failures
            if opens and not self._mark(key, changed.version, has_failures=True):
                return  # a later version has closed all, and its row is gone by now
            failed = None
            if (changed.failures, changed.expires) != (row.failures, row.expires):
                failed = self._put(key, changed, item, now)
            if failed is None:
                if not changed.failures:
                    self._mark(key, changed.version, has_failures=False)
                return
            item = failed
        raise _contended()

    def _put(self, key: JobKey, row: _Row, stored: Item, now: datetime) -> Item | None:
        """Put the row if it is still the stored one. Return the present row if it is not."""
        expires = row.expires
        if not row.failures:
            expires = keys.to_ttl(now + CLOSED_ROW_RETENTION)
        item = {
            **self._row_key(key).item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.VERSION_ATTR: to_attribute(row.version),
            keys.DATA_ATTR: to_attribute(_encode(list(row.failures))),
        }
        if expires is not None:
            item[keys.TTL] = to_attribute(expires)
        failed = self._dynamo.put_if(self._table, item, _is_still(stored))
        if failed is None or dict(failed.item) == item:
            return None
        return dict(failed.item)

    def _mark(self, key: JobKey, version: int, has_failures: bool) -> bool:
        """Set the mark in the row of the job's list, if there is a row without a later mark.

        Only an open failure sets a first mark. Return whether failures may be open by this version.
        """
        slot = list_slot_of(key.job_id, self._slots)
        row_key = keys.RowKey(
            list_partition(key.tenant, ListKind.JOBS, slot), keys.escape(key.job_id)
        )
        expression = "attribute_exists(#key) AND #mark < :mark"
        if has_failures:
            expression = "attribute_exists(#key) AND (attribute_not_exists(#mark) OR #mark < :mark)"
        condition = Condition(
            expression,
            "SET #mark = :mark",
            {"#key": keys.PK, "#mark": FAILURES_ATTR},
            {":mark": to_attribute(failure_mark(version, has_failures))},
        )
        failed = self._dynamo.update_if(self._table, row_key, condition)
        if not isinstance(failed, ConditionFailed) or FAILURES_ATTR not in failed.item:
            return has_failures
        return is_failing_item(dict(failed.item))

    def _read(self, key: JobKey) -> Item:
        row_key = self._row_key(key)
        return self._dynamo.read(self._table, [row_key]).get(row_key, {})

    def _read_all(self, tenant: str) -> tuple[list[Failure], bool]:
        """Return the failures of the first rows of each slot, and whether these are all."""
        slots = self._read_slots(tenant, None)
        failures = [failure for slot in slots for failure in slot.failures]
        return failures, not any(slot.read_until for slot in slots)

    def _read_slots(self, tenant: str, last_job_id: str | None) -> list[_Slot]:
        """Read the slots in parallel, from this job on to older ones."""
        now = self._clock()
        high = None if last_job_id is None else keys.escape(last_job_id)
        return self._dynamo.pool.map(
            lambda partition: self._read_slot(partition, high, now),
            list_partitions(tenant, ListKind.FAILURES, self._slots),
        )

    def _read_slot(self, partition: str, high: str | None, now: datetime) -> _Slot:
        key_range = KeyRange(partition, high=high, newest_first=True)
        failures: list[Failure] = []
        pages = self._dynamo.pages(self._table, key_range, FAILURE_PAGE_ROWS)
        read_until = ""
        for items, has_more in islice(pages, MAX_FAILURE_READS):
            failures += [failure for item in items for failure in _parse(item, now).failures]
            read_until = keys.unescape(items[-1][keys.SK]["S"]) if has_more and items else ""
        return _Slot(failures, read_until)

    def _row_key(self, key: JobKey) -> keys.RowKey:
        slot = list_slot_of(key.job_id, self._slots)
        partition = list_partition(key.tenant, ListKind.FAILURES, slot)
        return keys.RowKey(partition, keys.escape(key.job_id))


def _after(key: JobKey, row: _Row, changes: Sequence[FailureChange]) -> _Row:
    for change in changes:
        if change.version <= row.version:
            continue
        failures = row.failures
        for ended in change.runs:
            failures = after_run(failures, key.job_id, ended)
        if change.is_cancelled:
            failures = ()
        expires = None if change.expires_at is None else keys.to_ttl(change.expires_at)
        row = _Row(change.version, list(failures), expires if failures else None)
    return row


def _parse(item: Item, now: datetime) -> _Row:
    if not item or is_expired_item(item, now):
        return _Row()
    check_layout(item)
    failures = _decode(bytes(item[keys.DATA_ATTR]["B"]))
    expires = int(item[keys.TTL]["N"]) if failures and keys.TTL in item else None
    return _Row(int(item[keys.VERSION_ATTR]["N"]), failures, expires)


def _time_order(failure: Failure) -> tuple[datetime, str, str]:
    return failure.last_at, failure.job_id, failure.kind


def _job_order(failure: Failure) -> tuple[str, str]:
    return failure.job_id, failure.kind


def _find(row: _Row, failure_id: str) -> Failure | None:
    return next((failure for failure in row.failures if failure.failure_id == failure_id), None)


def _is_still(stored: Item) -> Condition:
    if not stored:
        return Condition("attribute_not_exists(#key)", names={"#key": keys.PK})
    return Condition(
        "#version = :version AND #data = :data",
        names={"#version": keys.VERSION_ATTR, "#data": keys.DATA_ATTR},
        values={":version": stored[keys.VERSION_ATTR], ":data": stored[keys.DATA_ATTR]},
    )


def _contended() -> Unavailable:
    return Unavailable("The failures of a job changed at each try to write them: try again.")
