"""The numbers of jobs of a tenant by status, which follow the rows of the list of jobs.

A row has one class: the status of its job, and for an ended job the day on which it expires. A
write that changes the class belongs to one counted batch. It counts once, whatever is repeated:

1. The batch is opened: its id enters the set `open` of one part of the tenant's counts.
2. Each write names the batch and the earlier class in its row, if no other write came first.
3. The batch is closed: one update adds all its changes, and takes the id out of the set.

After a crash the id stays in the set. A writer that meets a row which names such a batch settles
that row first: a transaction adds the change of this row, and puts a row that says so. The id moves
to the set `broken`, so the batch cannot be closed any more. Its own writer then settles row by row.

Batches add to different ids of the same row, so no batch waits for another.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.utc import EPOCH, MICROSECOND
from punctual.engine.ports.clock import Clock

OPEN_ATTR, BROKEN_ATTR = "open", "broken"  # sets of ids of batches
LAST_ATTR = "last"  # the last id that was opened
MOVED_PREFIX = "m"  # of the number of changes of a class that were counted in an hour
CORRECTED_ATTR = "corrected"  # the last correction of this part
MOVED_RETENTION = timedelta(hours=26)  # longer than the walk that needs these numbers
# A failed batch is repeated for hours, and a parked one for a day. Then no writer repeats it.
BROKEN_BATCH_RETENTION = timedelta(days=3)
MAX_OPEN_TRIES = 20  # each loses only to another writer that opened a batch
MAX_SETTLE_TRIES = 6  # then Lambda delivers the batch again
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_CLASS_CODES = {
    JobStatus.SCHEDULED: "S",
    JobStatus.PAUSED: "P",
    JobStatus.COMPLETED: "C",
    JobStatus.CANCELLED: "X",
}
_STATUS_BY_CLASS_CODE = {code: status for status, code in _CLASS_CODES.items()}
_RANDOM_DIGITS = 8  # hexadecimal digits of an id that are random
_TIME_DIGITS = 14  # hexadecimal digits of the microsecond at which a batch was opened
LIVE_CLASSES = ("S", "P")
NO_CLASS = ""  # the class of a job without a row


class CountedChange(NamedTuple):
    """A change of the class of one row, as the row tells it."""

    tenant: str
    row_key: keys.RowKey
    mark: str  # what the row names: the part, the batch and the earlier class
    new_class: str

    @property
    def batch(self) -> "CountedBatch":
        part, batch_id, _ = self.mark.split(".")
        return CountedBatch(self.tenant, int(part), batch_id)

    @property
    def old_class(self) -> str:
        return self.mark.split(".")[2]


class CountedBatch(NamedTuple):
    tenant: str
    part: int
    batch_id: str

    @property
    def row_key(self) -> keys.RowKey:
        return part_key(self.tenant, self.part)

    def mark(self, old_class: str) -> str:
        return f"{self.part}.{self.batch_id}.{old_class}"


class TenantJobCounts(NamedTuple):
    by_class: Mapping[str, int]
    moved_by_hour: Mapping[str, int]  # changes of a class that were counted in an hour

    def moved(self, start: datetime, end: datetime) -> int:
        """Return how many changes were counted in the hours from `start` to `end`."""
        first, last = _moved_attr(start), _moved_attr(end)
        return sum(number for name, number in self.moved_by_hour.items() if first <= name <= last)

    def by_status(self, now: datetime) -> dict[str, int]:
        """Return the number of jobs by status. Ended jobs count until the day they expire."""
        counts: Counter[JobStatus] = Counter()
        for job_class, count in self.by_class.items():
            if not _is_over(job_class, now):
                counts[_STATUS_BY_CLASS_CODE[job_class[0]]] += count
        return {status.value: counts[status] for status in JobStatus if counts[status] > 0}


def job_class(status: JobStatus, expires_at: datetime | None) -> str:
    """Return the class that the row of a job counts in.

    >>> from datetime import UTC
    >>> job_class(JobStatus.PAUSED, None)
    'P'
    >>> job_class(JobStatus.COMPLETED, datetime(2026, 12, 1, tzinfo=UTC))
    'C20788'
    """
    code = _CLASS_CODES[status]
    return code if expires_at is None else f"{code}{_day_of(expires_at)}"


class JobCounts:
    """The counts of all tenants, in as many parts as the stage has list slots."""

    def __init__(self, dynamo: DynamoClient, table: str, parts: int) -> None:
        self._dynamo = dynamo
        self._table = table
        self._parts = parts

    def read(self, tenant: str) -> TenantJobCounts:
        row_keys = [part_key(tenant, part) for part in range(self._parts)]
        rows = self._dynamo.read(self._table, row_keys).values()
        counts: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        for row in rows:
            counts.update(_parse_counts(row))
            moved.update(_parse_moved(row))
        return TenantJobCounts(counts, moved)

    def live_jobs(self, tenant: str) -> int:
        """Return the number of jobs that the quota of jobs counts."""
        counts = self.read(tenant).by_class
        return sum(max(0, counts.get(name, 0)) for name in LIVE_CLASSES)

    def correct(self, tenant: str, correction_id: str, counts: Mapping[str, int]) -> None:
        """Add `counts` by class, unless a correction with this id or a later one was added."""
        self._dynamo.update_if(
            self._table,
            part_key(tenant, 0),
            Condition(
                "attribute_not_exists(#corrected) OR #corrected < :corrected",
                f"{_add_clause(counts)} SET #corrected = :corrected, #layout = :layout",
                {
                    **_added_names(counts),
                    "#corrected": CORRECTED_ATTR,
                    "#layout": keys.LAYOUT_ATTR,
                },
                {
                    **_added_values(counts),
                    **to_item({":corrected": correction_id, ":layout": keys.ROW_LAYOUT}),
                },
            ),
        )


class CountedBatches:
    """Opens, closes and settles batches."""

    def __init__(
        self,
        dynamo: DynamoClient,
        table: str,
        parts: int,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._parts = parts
        self._clock = clock
        self._new_id = new_id

    def open(self, tenant: str) -> CountedBatch:
        """Open a batch in any part, and remove from the part what no writer needs any more.

        Ids of a part only grow. So a write that takes effect late opens no closed batch again.
        """
        now = self._clock()
        time, random_digits = now, self._new_id()[-_RANDOM_DIGITS:]
        part = int(random_digits, 16) % self._parts
        for _ in range(MAX_OPEN_TRIES):
            batch = CountedBatch(tenant, part, _time_digits(time) + random_digits)
            answer = self._dynamo.update_if(
                self._table, batch.row_key, _opening(batch), returns_row=True
            )
            row = answer.item if isinstance(answer, ConditionFailed) else answer
            if _has_id(row, OPEN_ATTR, batch):
                self._remove_stale(batch.row_key, row, now)
                return batch
            time = max(time, _time_of(row[LAST_ATTR]["S"])) + MICROSECOND
        raise Unavailable("The counts of jobs change too often.")

    def close(self, batch: CountedBatch, changes: Sequence[CountedChange]) -> None:
        """Count the changes of an open batch together, or one by one if one is settled already."""
        condition = _addition(batch, changes, self._clock(), OPEN_ATTR, "")
        answer = self._dynamo.update_if(self._table, batch.row_key, condition)
        if isinstance(answer, ConditionFailed) and _has_id(answer.item, BROKEN_ATTR, batch):
            for change in changes:
                self.settle(change)

    def unsettled(self, changes: Sequence[CountedChange]) -> frozenset[CountedBatch]:
        """Return those batches of these changes that are not closed."""
        batches = {change.batch for change in changes}
        if not batches:
            return frozenset()
        rows = self._dynamo.read(self._table, [batch.row_key for batch in batches])
        return frozenset(
            batch for batch in batches if _set_of(rows.get(batch.row_key, {}), batch) is not None
        )

    def settle(self, change: CountedChange) -> None:
        """Count this change alone, unless it is counted or its batch is closed."""
        now, batch, list_key = self._clock(), change.batch, change.row_key
        settled_key = keys.RowKey(batch.row_key.pk, f"{batch.batch_id}#{list_key.pk}#{list_key.sk}")
        for attempt in range(MAX_SETTLE_TRIES):
            rows = self._dynamo.read(self._table, [batch.row_key, settled_key])
            set_name = _set_of(rows.get(batch.row_key, {}), batch)
            if settled_key in rows or set_name is None:
                return
            addition = _addition(batch, [change], now, set_name, BROKEN_ATTR)
            update = {
                "TableName": self._table,
                "Key": batch.row_key.item(),
                **addition.arguments(),
            }
            if self._dynamo.transact(
                [{"Put": self._settled_put(settled_key, now)}, {"Update": update}]
            ):
                return
            self._dynamo.wait(attempt, change.mark)
        raise Unavailable("The counts of jobs change too often.")

    def _settled_put(self, settled_key: keys.RowKey, now: datetime) -> dict[str, Any]:
        item = {
            **settled_key.item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.TTL: to_attribute(keys.to_ttl(now + BROKEN_BATCH_RETENTION)),
        }
        absent = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
        return {"TableName": self._table, "Item": item, **absent.arguments()}

    def _remove_stale(self, row_key: keys.RowKey, row: Mapping[str, Any], now: datetime) -> None:
        """Remove ids of batches that broke long ago, and counts that nothing reads any more."""
        oldest = _time_digits(now - BROKEN_BATCH_RETENTION)
        stale_ids = {
            name: ids
            for name in (OPEN_ATTR, BROKEN_ATTR)
            if (ids := [batch_id for batch_id in _ids_of(row, name) if batch_id < oldest])
        }
        oldest_moved = _moved_attr(now - MOVED_RETENTION)
        over = [
            *(name for name in _parse_counts(row) if _is_over(name, now - _DAY)),
            *(name for name in _parse_moved(row) if name < oldest_moved),
        ]
        clauses = []
        if stale_ids:
            clauses.append("DELETE " + ", ".join(f"#{name} :{name}" for name in stale_ids))
        if over:
            clauses.append("REMOVE " + ", ".join(f"#{name}" for name in over))
        if clauses:
            names = {f"#{name}": name for name in (*stale_ids, *over)}
            values = {f":{name}": {"SS": ids} for name, ids in stale_ids.items()}
            condition = Condition(
                "attribute_exists(#pk)", " ".join(clauses), {**names, "#pk": keys.PK}, values
            )
            self._dynamo.update_if(self._table, row_key, condition)


class CountedWrites:
    """The changes of classes by one call, a batch for each tenant. Threads share it."""

    def __init__(self, batches: CountedBatches) -> None:
        self._batches = batches
        self._lock = Lock()
        self._changes: dict[str, tuple[CountedBatch, list[CountedChange]]] = {}

    def mark(self, tenant: str, old_class: str) -> str:
        """Return what a row names that leaves `old_class`. First open the batch of the tenant."""
        with self._lock:
            if tenant not in self._changes:
                self._changes[tenant] = (self._batches.open(tenant), [])
            return self._changes[tenant][0].mark(old_class)

    def add(self, change: CountedChange) -> None:
        with self._lock:
            self._changes[change.tenant][1].append(change)

    def close(self) -> None:
        """Count all changes. Where a write has failed, the batches must stay open instead."""
        for batch, changes in self._changes.values():
            self._batches.close(batch, changes)


def part_key(tenant: str, part: int) -> keys.RowKey:
    """Return the key of one part of a tenant's counts of jobs.

    >>> part_key("acme", 3)
    RowKey(pk='acme#jobcounts#03', sk='-')
    """
    return keys.RowKey(list_partition(tenant, ListKind.JOB_COUNTS, part), "-")


def _addition(
    batch: CountedBatch,
    changes: Sequence[CountedChange],
    now: datetime,
    set_name: str,
    new_set: str,
) -> Condition:
    """Return the update that adds the changes, and moves the id of the batch to `new_set`."""
    counts: Counter[str] = Counter({_moved_attr(now): len(changes)})
    for change in changes:
        counts[change.old_class] -= 1
        counts[change.new_class] += 1
    additions = {name: count for name, count in sorted(counts.items()) if name != NO_CLASS}
    update, names = _add_clause(additions), {**_added_names(additions), "#from": set_name}
    values = {**_added_values(additions), ":id": to_attribute(batch.batch_id)}
    if new_set != set_name:
        values[":ids"] = {"SS": [batch.batch_id]}
        if new_set:
            update += ", #to :ids"
            names["#to"] = new_set
        update += " DELETE #from :ids"
    return Condition("contains(#from, :id)", update, names, values)


def _add_clause(counts: Mapping[str, int]) -> str:
    return "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(counts)))


def _added_names(counts: Mapping[str, int]) -> dict[str, str]:
    return {f"#a{i}": name for i, name in enumerate(counts)}


def _added_values(counts: Mapping[str, int]) -> Item:
    return {f":a{i}": to_attribute(count) for i, count in enumerate(counts.values())}


def _opening(batch: CountedBatch) -> Condition:
    return Condition(
        "attribute_not_exists(#last) OR #last < :id",
        "ADD #open :ids SET #last = :id, #layout = :layout",
        {"#open": OPEN_ATTR, "#last": LAST_ATTR, "#layout": keys.LAYOUT_ATTR},
        {
            **to_item({":id": batch.batch_id, ":layout": keys.ROW_LAYOUT}),
            ":ids": {"SS": [batch.batch_id]},
        },
    )


def _set_of(row: Mapping[str, Any], batch: CountedBatch) -> str | None:
    """Return the set that the id of this batch is in, or None if the batch is closed."""
    return next((name for name in (OPEN_ATTR, BROKEN_ATTR) if _has_id(row, name, batch)), None)


def _has_id(row: Mapping[str, Any], name: str, batch: CountedBatch) -> bool:
    return batch.batch_id in _ids_of(row, name)


def _ids_of(row: Mapping[str, Any], name: str) -> Sequence[str]:
    return row[name]["SS"] if name in row else ()


def _time_digits(at: datetime) -> str:
    return f"{(at - EPOCH) // MICROSECOND:0{_TIME_DIGITS}x}"


def _time_of(batch_id: str) -> datetime:
    return EPOCH + int(batch_id[:_TIME_DIGITS], 16) * MICROSECOND


def _parse_counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in check_layout(row).items()
        if name[0] in _STATUS_BY_CLASS_CODE
    }


def _parse_moved(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value["N"]) for name, value in row.items() if name[0] == MOVED_PREFIX}


def _moved_attr(at: datetime) -> str:
    """Return the attribute that counts the changes of this hour. Names sort by time.

    >>> _moved_attr(EPOCH + 3 * _HOUR)
    'm000003'
    """
    return f"{MOVED_PREFIX}{(at - EPOCH) // _HOUR:06d}"


def _day_of(at: datetime) -> int:
    return (at - EPOCH) // _DAY


def _is_over(job_class: str, now: datetime) -> bool:
    """Return whether all jobs of this class have expired.

    >>> _is_over("S", EPOCH), _is_over("C1", EPOCH + _DAY), _is_over("C1", EPOCH + 2 * _DAY)
    (False, False, True)
    """
    return len(job_class) > 1 and int(job_class[1:]) < _day_of(now)
