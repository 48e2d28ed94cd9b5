"""Timers: rows in the partition of their minute and shard.

Timers put together for the same time share a row. One put creates a shared row, and later writes
only remove members. So a delete of all known members deletes the row, and no row is left empty.
Rows with the layout of a later version are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import Condition, DynamoClient, Range, chunked, key_of
from punctual.aws.dynamodb.timers import keys as timer_keys
from punctual.aws.dynamodb.timers.row_cache import KnownTimers
from punctual.aws.dynamodb.timers.rows import (
    MEMBERS,
    TimerRow,
    is_later,
    member,
    members_of,
    read_row,
    read_rows,
    rows_for,
)
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.engine.ports.timers import Timer, TimerPage

PAGE = 1_000
FIRST = 50  # rows in the first read, before the number of timers in a row is known
NEAR = 4  # rows, one read unit; a job's timer is nearly always in them
FAR = 100  # rows for each job in the second read
AT_ONCE = 1_000  # timers in one delete; their rows fit into the cache
TRIES = 25  # more than a row has members; each failed condition means that the row lost some


class DynamoTimers:
    """Timers in DynamoDB. `new_mark` returns a unique write id for the shared rows of a put."""

    def __init__(
        self,
        dynamo: DynamoClient,
        table: str,
        new_mark: Callable[[], str],
        known: KnownTimers | None = None,
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._new_mark = new_mark
        self._known = known or KnownTimers()

    def knowing(self, most: int) -> "DynamoTimers":
        """Return a copy with a cache of `most` pairs, for callers that delete after long reads."""
        return DynamoTimers(self._dynamo, self._table, self._new_mark, KnownTimers(most))

    def put(self, timers: Sequence[Timer]) -> None:
        rows = list(rows_for(timers, self._new_mark()))
        self._dynamo.put(self._table, [row.item() for row in rows])
        self._known.note(rows)

    def delete(self, timers: Sequence[Timer]) -> None:
        for some in chunked(dict.fromkeys(timers), AT_ONCE):
            self._delete(some)

    def _delete(self, wanted: Sequence[Timer]) -> None:
        leaving = self._known.leaving(wanted)
        if leaving.unknown:
            self._find(leaving.unknown)
            leaving = self._known.leaving(wanted)
        self._dynamo.delete(self._table, leaving.whole)
        self._dynamo.crew.map(self._take_out, leaving.parts.items())
        self._known.forget(wanted, leaving)

    def _find(self, timers: Sequence[Timer]) -> None:
        """Read the rows of timers that the cache does not know, and add them to the cache."""
        wanted = set(timers)
        for rows in self._dynamo.crew.map(self._up_to, _by_moment(timers)):
            self._known.note(row for row in rows if wanted.intersection(row.timers))

    def _take_out(self, part: tuple[keys.RowKey, set[Timer]]) -> None:
        """Remove members from a shared row, or delete the row if no other member is left.

        Other processes may remove members at the same time.
        """
        key, gone = part[0], {member(timer) for timer in part[1]}
        for _ in range(TRIES):
            refused = self._dynamo.update_if(self._table, key, _without(gone))
            if not isinstance(refused, ConditionFailed):
                return
            standing = set(members_of(refused.item)) if refused.item else set()
            if gone >= standing:
                if standing:
                    self._dynamo.delete(self._table, [key])
                return
            gone &= standing
            if not gone:
                return
        raise Unavailable("A row of timers changed too often.")

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        place, high = keys.bucket(bucket, shard), timer_keys.until_moment(until)
        found: dict[Timer, None] = {}
        read: list[TimerRow] = []
        later = 0
        low = None if cursor is None else timer_keys.behind(cursor)
        more = low is None or low <= high  # DynamoDB rejects a range with low > high
        while more and len(found) < limit:
            asked = _rows_holding(limit - len(found), len(found), len(read))
            rows, more = self._dynamo.some(self._table, Range(place, low, high), asked)
            for number, row in enumerate(rows, 1):
                cursor = key_of(row).sk
                if is_later(row):
                    later += 1
                    continue
                read.append(read_row(row))
                found.update(dict.fromkeys(read[-1].timers))
                if len(found) >= limit:
                    more = more or number < len(rows)
                    break
            low = timer_keys.behind(cursor) if rows and cursor else low
        self._known.note(read)
        return TimerPage(list(found), cursor if more else None, later)

    def standing(self, wanted: Sequence[Timer]) -> frozenset[Timer]:
        """Return the timers for which a timer of the same job, time, bucket and shard exists.

        1. Read the few rows before the place of each job.
        2. For jobs left undecided, read one longer range for each time.
        3. If that range has more rows, read a longer range for each job, then all rows.
        """
        found: set[Timer] = set()
        for group in _by_moment(self._look_near(wanted, NEAR, found)):
            rows, more = self._before(group[-1], min(PAGE, FAR * len(group)))
            left = _not_in(rows, group, found)
            if more and left and len(group) > 1:
                left = self._look_near(left, FAR, found)
            if more and left:
                _not_in(self._up_to(left), left, found)
        return frozenset(found)

    def _look_near(self, wanted: Sequence[Timer], limit: int, found: set[Timer]) -> list[Timer]:
        """Add the timers that exist to `found`. Return those that `limit` rows do not decide."""

        def is_near(timer: Timer) -> bool | None:
            rows, more = self._before(timer, limit)
            if any(timer.key == one.key for row in rows for one in row.timers):
                return True
            return None if more else False

        answers = list(zip(wanted, self._dynamo.crew.map(is_near, wanted), strict=True))
        found.update(timer for timer, near in answers if near)
        return [timer for timer, near in answers if near is None]

    def _before(self, timer: Timer, limit: int) -> tuple[list[TimerRow], bool]:
        """Return the rows before a job's place, nearest first, and whether more exist.

        A shared row sorts by its first member, so the row of a job stands close before its place.
        """
        low, high = timer_keys.before_job(timer.at, timer.tenant, timer.job_id)
        place = Range(keys.bucket(timer.bucket, timer.shard), low, high, newest_first=True)
        rows, more = self._dynamo.some(self._table, place, limit)
        return read_rows(rows), more

    def _up_to(self, group: Sequence[Timer]) -> Sequence[TimerRow]:
        """Return all rows of one time that can hold timers of these jobs."""
        last = group[-1]
        low, high = timer_keys.before_job(last.at, last.tenant, last.job_id)
        place = Range(keys.bucket(last.bucket, last.shard), low, high)
        return read_rows(self._dynamo.query(self._table, place, PAGE))


def _not_in(rows: Sequence[TimerRow], wanted: Sequence[Timer], found: set[Timer]) -> list[Timer]:
    there = {timer.key for row in rows for timer in row.timers}
    found.update(timer for timer in wanted if timer.key in there)
    return [timer for timer in wanted if timer.key not in there]


def _rows_holding(wanted: int, timers: int, rows: int) -> int:
    """Return how many rows to read, from the average number of timers in a row so far."""
    if not timers:
        return min(wanted, PAGE if rows else FIRST)
    return min(PAGE, -(-wanted * rows // timers))


def _by_moment(timers: Sequence[Timer]) -> list[list[Timer]]:
    return [list(some) for _, some in groupby(sorted(timers), key=lambda timer: timer[:3])]


def _without(members: set[str]) -> Condition:
    """Return the update that removes members if the row keeps at least one other member."""
    values: Mapping[str, object] = {
        ":these": {"SS": sorted(members)},
        ":many": {"N": str(len(members))},
    }
    return Condition(
        "attribute_exists(#members) AND size(#members) > :many",
        "DELETE #members :these",
        {"#members": MEMBERS},
        values,
    )
