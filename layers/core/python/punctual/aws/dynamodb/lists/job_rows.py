"""The rows of jobs in the lists of their tenants, one row for each job."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Attribute, Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout, key_of
from punctual.aws.dynamodb.lists.job_counts import (
    NO_CLASS,
    CountedBatch,
    CountedBatches,
    CountedChange,
    CountedWrites,
    job_class,
)
from punctual.aws.dynamodb.lists.job_row import (
    JobRow,
    RecentOutcome,
    merge_outcomes,
    pack_outcomes,
    pack_row,
    unpack_outcomes,
    unpack_row,
)
from punctual.aws.dynamodb.lists.keys import (
    ListKind,
    list_partition,
    list_partitions,
    list_slot_of,
)
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey

MAX_MERGE_TRIES = 5  # writes of one row until its outcomes include those of other writers
OUTCOMES_ATTR = "outcomes"
FAILURES_ATTR = "failing"  # the mark of open failures: an odd number while a failure is open
CLASS_ATTR = "class"  # what the job counts as in the counts of jobs
COUNTED_ATTR = "counted"  # the batch that counted the row in this class, and the earlier class
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
    # Whether a change of the batch moves the job to another class of the counts.
    moves_class: bool = False
    # Whether the row also replaces a wrong one of the same version.
    replaces_same: bool = False

    @property
    def job_class(self) -> str:
        return job_class(self.row.status, self.expires_at)

    def raises(self, item: Item) -> bool:
        """Return whether the present row, if any, is older."""
        return not item or int(item[keys.VERSION_ATTR]["N"]) < self.version + self.replaces_same


class StoredJobRow(NamedTuple):
    key: JobKey
    version: int
    row: JobRow
    outcomes: Sequence[RecentOutcome]
    counted: CountedChange | None


class JobRowKeyPage(NamedTuple):
    row_keys: Sequence[keys.RowKey]  # without emptied rows
    last_sk: str | None  # the sort key to continue after; None at the end


class JobRows:
    """Writes rows, and counts each change of a class once (`job_counts`)."""

    def __init__(
        self,
        dynamo: DynamoClient,
        table: str,
        slots: int,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slots = slots
        self._clock = clock
        self._batches = CountedBatches(dynamo, table, slots, clock, new_id)

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

        4. A change that moves the class reads the row too, unless the job is new. It belongs to a
           batch of the counts, which is closed after all writes.

        So batches may repeat, overlap and come in any order.
        """
        read_keys = [
            change.key
            for change in changes
            if (change.outcomes and not change.is_first)
            or (change.moves_class and not change.is_new)
        ]
        items = self._dynamo.read(self._table, [self.row_key(key) for key in read_keys])
        present = {key: items.get(self.row_key(key), {}) for key in read_keys}
        unsettled = self._batches.unsettled(
            [
                counted
                for change in changes
                if (item := present.get(change.key))
                and (counted := counted_change_of(item)) is not None
                and not (change.raises(item) and counted.new_class == change.job_class)
            ]
        )
        counted_writes = CountedWrites(self._batches)
        are_failing = self._dynamo.pool.map(
            lambda change: self._write(change, present.get(change.key), unsettled, counted_writes),
            changes,
        )
        counted_writes.close()
        return frozenset(
            change.key
            for change, is_failing in zip(changes, are_failing, strict=True)
            if is_failing
        )

    def partitions(self, tenant: str) -> Sequence[str]:
        return list_partitions(tenant, ListKind.JOBS, self._slots)

    def key_page(self, pk: str, after: str | None, limit: int) -> JobRowKeyPage:
        """Return keys of rows of a partition, oldest job first, after this sort key."""
        low = None if after is None else f"{after}#"  # `#` sorts before each character of an id
        key_range = KeyRange(pk, low=low)
        items, has_more = next(
            self._dynamo.pages(self._table, key_range, limit, is_consistent=False)
        )
        row_keys = [key_of(item) for item in items if keys.DATA_ATTR in item]
        return JobRowKeyPage(row_keys, key_of(items[-1]).sk if has_more else None)

    def remove(self, row_keys: Sequence[keys.RowKey]) -> None:
        """Empty these rows and let them expire. They no longer count."""
        counted_writes = CountedWrites(self._batches)
        self._dynamo.pool.map(lambda row_key: self._remove(row_key, counted_writes), row_keys)
        counted_writes.close()

    def row_key(self, key: JobKey, slots: int | None = None) -> keys.RowKey:
        """Return the key of a row, in a stage with so many slots."""
        return job_row_key(key, slots or self._slots)

    def settle(self, rows: Iterable[StoredJobRow]) -> None:
        """Count what batches that broke have not counted of these rows."""
        changes = [row.counted for row in rows if row.counted is not None]
        unsettled = self._batches.unsettled(changes)
        for change in changes:
            if change.batch in unsettled:
                self._batches.settle(change)

    def _write(
        self,
        change: JobRowChange,
        read_item: Item | None,
        unsettled: frozenset[CountedBatch] | None,
        counted_writes: CountedWrites,
    ) -> bool:
        """Write one row, and return whether it was seen with a mark of an open failure.

        A row that was not read is expected to keep its class, or to be new. If not, it refuses the
        first write, and so shows its mark and its class.
        `unsettled` are the batches of `read_item` that are open, or None if they are not known.
        """
        now, row_key = self._clock(), self.row_key(change.key)
        item = read_item
        former_keys: Sequence[keys.RowKey] = ()
        for _ in range(MAX_MERGE_TRIES):
            if item == {} and not change.is_new and not former_keys:
                former_keys, outcomes = self._read_former(change.key)
                change = change._replace(outcomes=[*change.outcomes, *outcomes])
            update = _update_of(change, item, now)
            earlier = counted_change_of(item) if item else None
            if (
                earlier is not None
                and (update.moves_class or not update.has_row)
                and (unsettled is None or earlier.batch in unsettled)
            ):
                self._batches.settle(earlier)
            counted = None
            if update.moves_class:
                old_class = NO_CLASS if earlier is None else earlier.new_class
                mark = counted_writes.mark(change.key.tenant, old_class)
                counted = CountedChange(change.key.tenant, row_key, mark, change.job_class)
                update.set_class(counted, earlier)
            if not update.values:
                return is_failing_item(item or {})
            answer = self._dynamo.update_if(self._table, row_key, update.condition())
            if not isinstance(answer, ConditionFailed):
                if counted is not None:
                    counted_writes.add(counted)
                for former_key in former_keys:
                    self._remove(former_key, counted_writes)
                return is_failing_item(item or {})
            item, unsettled = dict(answer.item), None
            if counted is not None and counted_change_of(item) == counted:
                counted_writes.add(counted)  # the answer to an earlier try was lost
                return is_failing_item(item)
        raise Unavailable("A row of the list of jobs changed at each try to write it.")

    def _read_former(self, key: JobKey) -> tuple[Sequence[keys.RowKey], Sequence[RecentOutcome]]:
        """Return the rows of this job in slots of a former, smaller number, and their outcomes."""
        former_keys = {self.row_key(key, slots) for slots in range(1, self._slots)}
        items = self._dynamo.read(self._table, list(former_keys - {self.row_key(key)}))
        rows = [parse_job_row(item) for item in items.values() if keys.DATA_ATTR in item]
        return list(items), [outcome for row in rows for outcome in row.outcomes]

    def _remove(self, row_key: keys.RowKey, counted_writes: CountedWrites) -> None:
        """Empty one row unless it changes meanwhile. The next walk then finds it again."""
        item = self._dynamo.read(self._table, [row_key]).get(row_key, {})
        earlier = counted_change_of(item)
        if earlier is None or earlier.new_class == NO_CLASS:
            return
        self._batches.settle(earlier)
        mark = counted_writes.mark(earlier.tenant, earlier.new_class)
        counted = CountedChange(earlier.tenant, row_key, mark, NO_CLASS)
        update = _RowUpdate(to_attribute(int(self._clock().timestamp())))
        update.set_class(counted, earlier)
        update.empty_row()
        answer = self._dynamo.update_if(self._table, row_key, update.condition())
        if not isinstance(answer, ConditionFailed) or counted_change_of(answer.item) == counted:
            counted_writes.add(counted)


def job_row_key(key: JobKey, slots: int) -> keys.RowKey:
    """Return the key of the row of a job, in a stage with so many list slots."""
    slot = list_slot_of(key.job_id, slots)
    return keys.RowKey(list_partition(key.tenant, ListKind.JOBS, slot), keys.escape(key.job_id))


def outcomes_of(item: Item) -> list[RecentOutcome]:
    check_layout(item)
    job_id = keys.unescape(item[keys.SK]["S"])
    return unpack_outcomes(job_id, bytes(item[OUTCOMES_ATTR]["B"])) if OUTCOMES_ATTR in item else []


def parse_job_row(item: Item) -> StoredJobRow:
    outcomes = outcomes_of(item)
    tenant = keys.split_parts(item[keys.PK]["S"])[0]
    job_id = keys.unescape(item[keys.SK]["S"])
    return StoredJobRow(
        JobKey(tenant, job_id),
        int(item[keys.VERSION_ATTR]["N"]),
        unpack_row(bytes(item[keys.DATA_ATTR]["B"])),
        outcomes,
        counted_change_of(item),
    )


def counted_change_of(item: Mapping[str, Attribute]) -> CountedChange | None:
    """Return the change that brought the row into its class, or None if there is no row."""
    if COUNTED_ATTR not in item:
        return None
    row_key = key_of(item)
    tenant = keys.split_parts(row_key.pk)[0]
    new_class = item[CLASS_ATTR]["S"] if CLASS_ATTR in item else NO_CLASS
    return CountedChange(tenant, row_key, item[COUNTED_ATTR]["S"], new_class)


def is_expired_item(item: Mapping[str, Attribute], now: datetime) -> bool:
    return keys.TTL in item and int(item[keys.TTL]["N"]) <= now.timestamp()


def failure_mark(version: int, has_failures: bool) -> int:
    """Return the mark of a job in this version. Later versions have higher marks.

    So a late write of an earlier version is refused, whether it sets the mark or takes it away.
    """
    return 2 * version + has_failures


def is_failing_item(item: Item) -> bool:
    """Return whether the row of a job has the mark of an open failure."""
    return FAILURES_ATTR in item and int(item[FAILURES_ATTR]["N"]) % 2 == 1


def _update_of(change: JobRowChange, item: Item | None, now: datetime) -> "_RowUpdate":
    """Return the update that brings this row up to date. It has no values if the row already is.

    A row that was not read (None) is expected to be older, and to be new if the job is.
    """
    update = _RowUpdate(to_attribute(int(now.timestamp())))
    if item is None:
        update.set_row(change, moves_class=change.is_new)
        if change.is_new:
            update.removed += [OUTCOMES_ATTR, FAILURES_ATTR]
        if change.outcomes:
            update.set_outcomes(
                pack_outcomes(change.key.job_id, merge_outcomes((), change.outcomes)), None
            )
        return update
    job_id = change.key.job_id
    # An expired row is of an earlier job with this id. DynamoDB removes it later.
    replaces_expired = is_expired_item(item, now)
    present: Item = {} if replaces_expired else item
    pack = bytes(present[OUTCOMES_ATTR]["B"]) if OUTCOMES_ATTR in present else None
    stored = [] if pack is None else unpack_outcomes(job_id, pack)
    merged = merge_outcomes(stored, change.outcomes)
    if change.raises(present):
        counted = counted_change_of(item)
        update.set_row(change, counted is None or counted.new_class != change.job_class)
        if replaces_expired or change.is_new:
            update.removed += [OUTCOMES_ATTR, FAILURES_ATTR]
    if merged != stored:
        update.set_outcomes(pack_outcomes(job_id, merged), pack)
    return update


class _RowUpdate:
    """Collects the parts of a conditional update. Each part brings its own condition."""

    def __init__(self, now: Attribute) -> None:
        self.values: Item = {}
        self.removed: list[str] = []
        self.has_row = False
        self.moves_class = False
        self._conditions: list[str] = []
        self._now = now
        self._names: dict[str, str] = {}
        self._parameters: Item = {}

    def set_row(self, change: JobRowChange, moves_class: bool) -> None:
        """Set the values of a later version. Unless the class moves, the row must have the same."""
        self.has_row, self.moves_class = True, moves_class
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
        if not moves_class:
            self._names["#class"] = CLASS_ATTR
            self._parameters[":class"] = to_attribute(change.job_class)
            self._conditions.append("#class = :class")

    def set_class(self, counted: CountedChange, earlier: CountedChange | None) -> None:
        """Set the class and its mark, if no other write has moved the class."""
        self.values[COUNTED_ATTR] = to_attribute(counted.mark)
        if counted.new_class == NO_CLASS:
            self.removed.append(CLASS_ATTR)
        else:
            self.values[CLASS_ATTR] = to_attribute(counted.new_class)
        self._names["#mark"] = COUNTED_ATTR
        if earlier is None:
            self._conditions.append("attribute_not_exists(#mark)")
        else:
            self._conditions.append("#mark = :mark")
            self._parameters[":mark"] = to_attribute(earlier.mark)

    def empty_row(self) -> None:
        """Remove the values. The row expires at once."""
        self.values[keys.TTL] = self._now
        self.removed += [keys.DATA_ATTR, OUTCOMES_ATTR, FAILURES_ATTR, HELD_ATTR]

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
