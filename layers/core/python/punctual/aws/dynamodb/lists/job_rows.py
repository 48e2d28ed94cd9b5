"""The rows of jobs in the lists of their tenants, one row for each job."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Attribute, Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.dynamodb.lists.job_row import (
    JobRow,
    RecentOutcome,
    merge_outcomes,
    pack_outcomes,
    pack_row,
    unpack_outcomes,
    unpack_row,
)
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition, list_slot_of
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey

MAX_MERGE_TRIES = 5  # writes of one row until its outcomes include those of other writers
OUTCOMES_ATTR = "outcomes"
FAILURES_ATTR = "failing"  # the mark of open failures: an odd number while a failure is open
HELD_ATTR = "held"  # set if an executor holds a run of the job, so that a filter finds it


class JobRowChange(NamedTuple):
    """The row of a job as of `version`, and the outcomes that a batch of changes adds."""

    key: JobKey
    version: int
    row: JobRow
    outcomes: Sequence[RecentOutcome]
    expires_at: datetime | None
    # Whether the job has probably had no outcome before, so that none is read.
    is_first: bool = False
    # Whether the batch begins with the creation of the job. Outcomes in the row are of an earlier
    # job with this id.
    is_new: bool = False
    # Whether the row also replaces a wrong one of the same version.
    replaces_same: bool = False


class StoredJobRow(NamedTuple):
    key: JobKey
    version: int
    row: JobRow
    outcomes: Sequence[RecentOutcome]


class JobRows:
    def __init__(self, dynamo: DynamoClient, table: str, slots: int, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slots = slots
        self._clock = clock

    def load(self, job_keys: Sequence[JobKey]) -> Mapping[JobKey, StoredJobRow]:
        """Return the rows that exist and are not expired."""
        now = self._clock()
        items = self._dynamo.read(self._table, [self.row_key(key) for key in job_keys])
        return {
            stored.key: stored
            for item in items.values()
            if not is_expired_item(item, now)
            for stored in [parse_job_row(item)]
        }

    def write(self, changes: Sequence[JobRowChange]) -> frozenset[JobKey]:
        """Write each row unless a later version stands there. Merge the outcomes in any case.

        Return the jobs with a mark of an open failure, of those with an outcome before.

        1. A change without outcomes leaves those of the row as they are.
        2. A change with outcomes reads the row, and writes if its outcomes are still the same.
        3. A row of a later version keeps its values and takes only the outcomes.

        So batches may repeat, overlap and come in any order.
        """
        known_keys = [change.key for change in changes if change.outcomes and not change.is_first]
        items = self._dynamo.read(self._table, [self.row_key(key) for key in known_keys])
        are_failing = self._dynamo.pool.map(
            lambda change: self._write(change, items.get(self.row_key(change.key), {})), changes
        )
        return frozenset(
            change.key
            for change, is_failing in zip(changes, are_failing, strict=True)
            if is_failing
        )

    def row_key(self, key: JobKey) -> keys.RowKey:
        slot = list_slot_of(key.job_id, self._slots)
        return keys.RowKey(list_partition(key.tenant, ListKind.JOBS, slot), keys.escape(key.job_id))

    def _write(self, change: JobRowChange, item: Item) -> bool:
        """Write a row, and return whether it was seen with a mark of an open failure.

        A row with unexpected outcomes refuses the first write, and so shows its mark.
        """
        now = self._clock()
        for _ in range(MAX_MERGE_TRIES):
            condition = _update_of(change, item, now)
            if condition is None:
                return is_failing_item(item)
            outcome = self._dynamo.update_if(self._table, self.row_key(change.key), condition)
            if not isinstance(outcome, ConditionFailed):
                return is_failing_item(item)
            item = dict(outcome.item)
        raise Unavailable("A row of the list of jobs changed at each try to write it.")


def parse_job_row(item: Item) -> StoredJobRow:
    check_layout(item)
    tenant = keys.split_parts(item[keys.PK]["S"])[0]
    job_id = keys.unescape(item[keys.SK]["S"])
    outcomes = (
        unpack_outcomes(job_id, bytes(item[OUTCOMES_ATTR]["B"])) if OUTCOMES_ATTR in item else []
    )
    return StoredJobRow(
        JobKey(tenant, job_id),
        int(item[keys.VERSION_ATTR]["N"]),
        unpack_row(bytes(item[keys.DATA_ATTR]["B"])),
        outcomes,
    )


def is_expired_item(item: Item, now: datetime) -> bool:
    return keys.TTL in item and int(item[keys.TTL]["N"]) <= now.timestamp()


def failure_mark(version: int, has_failures: bool) -> int:
    """Return the mark of a job in this version. Later versions have higher marks.

    So a late write of an earlier version is refused, whether it sets the mark or takes it away.
    """
    return 2 * version + has_failures


def is_failing_item(item: Item) -> bool:
    """Return whether the row of a job has the mark of an open failure."""
    return FAILURES_ATTR in item and int(item[FAILURES_ATTR]["N"]) % 2 == 1


def _update_of(change: JobRowChange, item: Item, now: datetime) -> Condition | None:
    """Return the update that brings this row up to date, or None if it already is."""
    job_id = change.key.job_id
    # An expired row is of an earlier job with this id. DynamoDB removes it later.
    replaces_expired = is_expired_item(item, now)
    if replaces_expired:
        item = {}
    pack = bytes(item[OUTCOMES_ATTR]["B"]) if OUTCOMES_ATTR in item else None
    stored = [] if pack is None else unpack_outcomes(job_id, pack)
    merged = merge_outcomes(stored, change.outcomes)
    update = _RowUpdate(to_attribute(int(now.timestamp())))
    if not item or int(item[keys.VERSION_ATTR]["N"]) < change.version + change.replaces_same:
        update.set_row(change)
        if replaces_expired or change.is_new:
            update.removed += [OUTCOMES_ATTR, FAILURES_ATTR]
    if merged != stored:
        update.set_outcomes(pack_outcomes(job_id, merged), pack)
    return update.condition() if update.values else None


class _RowUpdate:
    """Collects the parts of a conditional update. Each part brings its own condition."""

    def __init__(self, now: Attribute) -> None:
        self.values: Item = {}
        self.removed: list[str] = []
        self._conditions: list[str] = []
        self._now = now
        self._names: dict[str, str] = {}
        self._parameters: Item = {}

    def set_row(self, change: JobRowChange) -> None:
        self.values |= {
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.VERSION_ATTR: to_attribute(change.version),
            keys.DATA_ATTR: to_attribute(pack_row(change.row)),
        }
        if change.row.held_runs:
            self.values[HELD_ATTR] = to_attribute(change.row.held_runs)
        if change.expires_at is not None:
            self.values[keys.TTL] = to_attribute(keys.to_ttl(change.expires_at))
        self.removed += [name for name in (HELD_ATTR, keys.TTL) if name not in self.values]
        self._conditions.append(
            "(attribute_not_exists(#version) OR #version < :version OR #expires <= :now)"
        )
        self._compare_expiry()
        self._names["#version"] = keys.VERSION_ATTR
        self._parameters[":version"] = to_attribute(change.version + change.replaces_same)

    def set_outcomes(self, pack: bytes, stored_pack: bytes | None) -> None:
        """Set the outcomes if they are still those that were read."""
        self.values[OUTCOMES_ATTR] = to_attribute(pack)
        self.removed = [name for name in self.removed if name != OUTCOMES_ATTR]
        self._names["#outcomes"] = OUTCOMES_ATTR
        if stored_pack is None:
            self._compare_expiry()
            self._conditions.append("(attribute_not_exists(#outcomes) OR #expires <= :now)")
        else:
            self._conditions.append("#outcomes = :outcomes")
            self._parameters[":outcomes"] = to_attribute(stored_pack)

    def _compare_expiry(self) -> None:
        self._names["#expires"] = keys.TTL
        self._parameters[":now"] = dict(self._now)

    def condition(self) -> Condition:
        set_names = {f"#s{i}": name for i, name in enumerate(self.values)}
        removed_names = {f"#r{i}": name for i, name in enumerate(self.removed)}
        update = "SET " + ", ".join(f"{mark} = :{mark[1:]}" for mark in set_names)
        if removed_names:
            update += f" REMOVE {', '.join(removed_names)}"
        values = {f":s{i}": value for i, value in enumerate(self.values.values())}
        return Condition(
            " AND ".join(self._conditions),
            update,
            {**self._names, **set_names, **removed_names},
            {**self._parameters, **values},
        )
