"""Timers: rows in the partition of their minute and shard.

Timers put together for the same time share a row. One put creates a shared row, and later writes
only remove members. So a delete of all known members deletes the row, and no row is left empty.
Rows with the layout of a later version are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, chunked, key_of
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR
from punctual.aws.dynamodb.timers.rows import (
    TimerRow,
    TimerRowCache,
    build_rows,
    is_later_layout,
    member_text,
    parse_row,
    parse_rows,
    read_members,
)
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.engine.ports.timers import Timer, TimerPage

TIMER_ROW_PAGE_SIZE = 1_000
FIRST_READ_ROWS = 50  # rows in the first read, before the number of timers in a row is known
NEAR_READ_ROWS = 4  # rows, one read unit; a job's timer is nearly always in them
FAR_READ_ROWS = 100  # rows for each job in the second read
MAX_TIMERS_PER_DELETE = 1_000  # timers in one delete; their rows fit into the cache
# More than a row has members; each failed condition means that the row lost some.
MAX_MEMBER_DELETE_TRIES = 25


class DynamoTimers:
    """Timers in DynamoDB. `new_write_id` returns a unique write id for the shared rows of a put."""

    def __init__(
        self,
        dynamo: DynamoClient,
        table: str,
        new_write_id: Callable[[], str],
        cache: TimerRowCache | None = None,
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._new_write_id = new_write_id
        self._cache = cache or TimerRowCache()

    def with_cache_size(self, max_pairs: int) -> "DynamoTimers":
        """Return a copy with another cache size, for callers that delete after long reads."""
        return DynamoTimers(self._dynamo, self._table, self._new_write_id, TimerRowCache(max_pairs))

    def put(self, timers: Sequence[Timer]) -> None:
        rows = list(build_rows(timers, self._new_write_id()))
        self._dynamo.put(self._table, [row.item() for row in rows])
        self._cache.add(rows)

    def delete(self, timers: Sequence[Timer]) -> None:
        for chunk in chunked(dict.fromkeys(timers), MAX_TIMERS_PER_DELETE):
            self._delete_chunk(chunk)

    def _delete_chunk(self, timers: Sequence[Timer]) -> None:
        plan = self._cache.plan_delete(timers)
        if plan.unknown:
            self._cache_rows_of(plan.unknown)
            plan = self._cache.plan_delete(timers)
        self._dynamo.delete(self._table, plan.whole_rows)
        self._dynamo.pool.map(self._remove_members, plan.members_by_row.items())
        self._cache.forget(timers, plan)

    def _cache_rows_of(self, timers: Sequence[Timer]) -> None:
        """Read the rows of timers that the cache does not know, and add them to the cache."""
        wanted_timers = set(timers)
        for rows in self._dynamo.pool.map(self._rows_up_to, _group_by_time(timers)):
            self._cache.add(row for row in rows if wanted_timers.intersection(row.timers))

    def _remove_members(self, row_timers: tuple[keys.RowKey, set[Timer]]) -> None:
        """Remove members from a shared row, or delete the row if no other member is left.

        Other processes may remove members at the same time.
        """
        key, members = row_timers[0], {member_text(timer) for timer in row_timers[1]}
        for _ in range(MAX_MEMBER_DELETE_TRIES):
            outcome = self._dynamo.update_if(self._table, key, _remove_condition(members))
            if not isinstance(outcome, ConditionFailed):
                return
            present = set(read_members(outcome.item)) if outcome.item else set()
            if members >= present:
                if present:
                    self._dynamo.delete(self._table, [key])
                return
            members &= present
            if not members:
                return
        raise Unavailable("A row of timers changed too often.")

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        partition, high = keys.timer_partition(bucket, shard), timer_keys.due_upper_bound(until)
        due_timers: dict[Timer, None] = {}
        timer_rows: list[TimerRow] = []
        later_layouts = 0
        low = None if cursor is None else timer_keys.next_sort_key(cursor)
        has_more = low is None or low <= high  # DynamoDB rejects a range with low > high
        while has_more and len(due_timers) < limit:
            row_limit = _row_limit(limit - len(due_timers), len(due_timers), len(timer_rows))
            rows, has_more = self._dynamo.query_page(
                self._table, KeyRange(partition, low, high), row_limit
            )
            for row_number, row in enumerate(rows, 1):
                cursor = key_of(row).sk
                if is_later_layout(row):
                    later_layouts += 1
                    continue
                timer_rows.append(parse_row(row))
                due_timers.update(dict.fromkeys(timer_rows[-1].timers))
                if len(due_timers) >= limit:
                    has_more = has_more or row_number < len(rows)
                    break
            low = timer_keys.next_sort_key(cursor) if rows and cursor else low
        self._cache.add(timer_rows)
        return TimerPage(list(due_timers), cursor if has_more else None, later_layouts)

    def find_existing(self, timers: Sequence[Timer]) -> frozenset[Timer]:
        """Return the timers for which a timer of the same job, time, bucket and shard exists.

        1. Read the few rows before the place of each job.
        2. For jobs left undecided, read one longer range for each time.
        3. If that range has more rows, read a longer range for each job, then all rows.
        """
        existing: set[Timer] = set()
        for group in _group_by_time(self._find_near(timers, NEAR_READ_ROWS, existing)):
            rows, has_more = self._rows_before(
                group[-1], min(TIMER_ROW_PAGE_SIZE, FAR_READ_ROWS * len(group))
            )
            undecided = _missing_from(rows, group, existing)
            if has_more and undecided and len(group) > 1:
                undecided = self._find_near(undecided, FAR_READ_ROWS, existing)
            if has_more and undecided:
                _missing_from(self._rows_up_to(undecided), undecided, existing)
        return frozenset(existing)

    def _find_near(self, timers: Sequence[Timer], limit: int, existing: set[Timer]) -> list[Timer]:
        """Add the timers that exist to `existing`. Return those that `limit` rows do not decide."""

        def is_near(timer: Timer) -> bool | None:
            rows, has_more = self._rows_before(timer, limit)
            if any(timer.key == candidate.key for row in rows for candidate in row.timers):
                return True
            return None if has_more else False

        answers = list(zip(timers, self._dynamo.pool.map(is_near, timers), strict=True))
        existing.update(timer for timer, near in answers if near)
        return [timer for timer, near in answers if near is None]

    def _rows_before(self, timer: Timer, limit: int) -> tuple[list[TimerRow], bool]:
        """Return the rows before a job's place, nearest first, and whether more exist.

        A shared row sorts by its first member, so the row of a job stands close before its place.
        """
        low, high = timer_keys.job_bounds(timer.at, timer.tenant, timer.job_id)
        key_range = KeyRange(
            keys.timer_partition(timer.bucket, timer.shard), low, high, newest_first=True
        )
        rows, has_more = self._dynamo.query_page(self._table, key_range, limit)
        return parse_rows(rows), has_more

    def _rows_up_to(self, group: Sequence[Timer]) -> Sequence[TimerRow]:
        """Return all rows of one time that can hold timers of these jobs."""
        last = group[-1]
        low, high = timer_keys.job_bounds(last.at, last.tenant, last.job_id)
        key_range = KeyRange(keys.timer_partition(last.bucket, last.shard), low, high)
        return parse_rows(self._dynamo.query(self._table, key_range, TIMER_ROW_PAGE_SIZE))


def _missing_from(
    rows: Sequence[TimerRow], timers: Sequence[Timer], existing: set[Timer]
) -> list[Timer]:
    keys_in_rows = {timer.key for row in rows for timer in row.timers}
    existing.update(timer for timer in timers if timer.key in keys_in_rows)
    return [timer for timer in timers if timer.key not in keys_in_rows]


def _row_limit(timers_wanted: int, timers_read: int, rows_read: int) -> int:
    """Return how many rows to read, from the average number of timers in a row so far."""
    if not timers_read:
        return min(timers_wanted, TIMER_ROW_PAGE_SIZE if rows_read else FIRST_READ_ROWS)
    return min(TIMER_ROW_PAGE_SIZE, -(-timers_wanted * rows_read // timers_read))


def _group_by_time(timers: Sequence[Timer]) -> list[list[Timer]]:
    return [list(group) for _, group in groupby(sorted(timers), key=lambda timer: timer[:3])]


def _remove_condition(members: set[str]) -> Condition:
    """Return the update that removes members if the row keeps at least one other member."""
    values: Mapping[str, object] = {
        ":these": {"SS": sorted(members)},
        ":many": {"N": str(len(members))},
    }
    return Condition(
        "attribute_exists(#members) AND size(#members) > :many",
        "DELETE #members :these",
        {"#members": MEMBERS_ATTR},
        values,
    )
