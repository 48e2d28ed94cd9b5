"""Job states: one row each, with compare and swap on the version.

Each lease is a separate attribute of the row.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, Range, key_of
from punctual.aws.dynamodb.jobs import state_rows as rows
from punctual.aws.dynamodb.jobs.definitions import DynamoDefinitions
from punctual.aws.dynamodb.keys import (
    BEATING,
    ENDED,
    LINE,
    RUNS,
    STATE,
    VERSION,
    RowKey,
    head,
    parse_head,
    slot,
)
from punctual.aws.dynamodb.sort_keys import escape
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import SLOTS
from punctual.domain.job_state import JobState
from punctual.domain.schedules.upcoming import in_order
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import Coming, DefinitionRow, HeadPage, Key, Walk

ALL = 500  # states in a page when all states of a tenant are read
WALKED = 20  # at most this many pages of a slot are read to find busy jobs
MOST_BEATING = 1_000  # at most this many states with a heartbeat are read of a larger slot
REMEMBERED = timedelta(minutes=5)  # how long a slot counts as larger
_BUSY = (RUNS, LINE, ENDED)
_IS_BUSY = " OR ".join(f"attribute_exists(#{name})" for name in _BUSY)


class DynamoJobStates:
    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._bodies = DynamoDefinitions(dynamo, table)
        self._crowded_until: dict[str, datetime] = {}

    def load(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        found = self._dynamo.read(self._table, [head(*key) for key in keys])
        now = self._clock()
        present = (rows.from_row(row) for row in found.values() if not rows.is_expired(row, now))
        return {Key(one.head.tenant, one.head.job_id): one for one in present}

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        return self._dynamo.crew.map(self._swap, swaps)

    def beat(self, beats: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        return self._dynamo.crew.map(self._beat, beats)

    def put_bodies(self, bodies: Sequence[DefinitionRow]) -> None:
        self._bodies.put(bodies)

    def bodies(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], DefinitionRow]:
        return self._bodies.get(wanted)

    def page(self, tenant: str, before: str | None, limit: int) -> HeadPage:
        """Return a page of jobs, newest first, merged from the sixteen slots.

        The first query of each slot reads twice its share of the page.
        """
        high = None if before is None else escape(before)
        share = limit // SLOTS * 2 + 4
        ranges = [
            self._in_slot(Range(slot(tenant, n), high=high, below=True, newest_first=True), share)
            for n in range(SLOTS)
        ]
        merged = heapq.merge(
            *self._dynamo.crew.map(_begun, ranges), key=lambda one: one.job_id, reverse=True
        )
        heads = list(islice((one for one in merged if not one.blank), limit + 1))
        shown = heads[:limit]
        wanted = [(Key(tenant, one.job_id), one.current.body) for one in shown]
        bodies = self.bodies(wanted)
        return HeadPage.of(shown, wanted, bodies, len(heads) > limit)

    def coming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, most: int
    ) -> Coming | None:
        """Return the jobs that are due next, or None if the tenant has too many jobs.

        All states are read and sorted because no index has this order.
        """
        share = 2 * -(-most // SLOTS)
        slots = self._dynamo.crew.map(
            lambda n: list(islice(self._in_slot(Range(slot(tenant, n)), share + 1), share + 1)),
            range(SLOTS),
        )
        if any(len(heads) > share for heads in slots):
            return None
        return Coming(*in_order(chain.from_iterable(slots), after, end, limit))

    def busy(self, tenant: str) -> Sequence[JobState]:
        """Return the busy jobs. A slot with very many jobs yields only those with a heartbeat."""
        slots = [slot(tenant, n) for n in range(SLOTS)]
        walked = self._dynamo.crew.map(self._busy_in, slots)
        crowded = [here for here, found in zip(slots, walked, strict=True) if found is None]
        known = self._beating(crowded, MOST_BEATING) if crowded else {}
        found = [head for heads in walked if heads is not None for head in heads]
        return [*found, *(one.head for one in known.values())]

    def _busy_in(self, here: str) -> Sequence[JobState] | None:
        """Return the busy jobs of a slot, or None if it has too many jobs to read."""
        now = self._clock()
        if now < self._crowded_until.get(here, now):
            return None
        filtered = {
            "FilterExpression": _IS_BUSY,
            "ExpressionAttributeNames": {f"#{name}": name for name in _BUSY},
        }
        found: list[Item] = []
        pages = self._dynamo.pages(self._table, Range(here), ALL, filtered)
        for read, (some, more) in enumerate(pages, start=1):
            found += some
            if more and read == WALKED:
                self._crowded_until[here] = now + REMEMBERED
                return None
        return list(self._standing_in(found))

    def beating(self, tenant: str, share: int) -> Mapping[Key, StoredState]:
        """Return the states of jobs with a heartbeat, at most `share` of each slot."""
        return self._beating([slot(tenant, n) for n in range(SLOTS)], share)

    def _beating(self, slots: Sequence[str], most: int) -> Mapping[Key, StoredState]:
        found = self._dynamo.crew.map(
            lambda here: self._dynamo.indexed(self._table, BEATING, here, most), slots
        )
        return self.load([Key(*parse_head(at)) for at in chain.from_iterable(found)])

    def walk(self, cursor: str | None, limit: int) -> Walk:
        """Return a page of all job states. The cursor is the last key; keys contain no spaces."""
        after = None if cursor is None else RowKey(*cursor.split(" "))
        filtered = {
            "FilterExpression": "attribute_exists(#state)",
            "ExpressionAttributeNames": {"#state": STATE},
        }
        found, last = self._dynamo.scan(self._table, after, limit, filtered)
        now = self._clock()
        heads: list[JobState] = []
        unread: list[tuple[Key, str]] = []
        for row in found:
            try:
                if not rows.is_expired(row, now):
                    heads.append(rows.from_row(row).head)
            except Exception as error:
                unread.append((_named(row), type(error).__name__))
        return Walk(heads, None if last is None else f"{last.pk} {last.sk}", unread)

    def _in_slot(self, where: Range, page: int) -> Iterator[JobState]:
        return self._standing_in(self._dynamo.query(self._table, where, page))

    def _standing_in(self, found: Iterable[Item]) -> Iterator[JobState]:
        now = self._clock()
        for row in found:
            if not rows.is_expired(row, now):
                yield rows.from_row(row).head

    def _swap(self, swap: Swap) -> bool:
        """Write if the version is the expected one. Return whether this swap won.

        A rejected write has won if the row carries its write id. After a write without an answer,
        a read decides.
        """
        try:
            refused = self._write(swap)
        except Unavailable:
            standing = self._standing(swap)
            if standing is None:
                raise
            return standing
        return refused is None or rows.is_own(swap.head, refused.item)

    def _write(self, swap: Swap) -> ConditionFailed | None:
        now = self._clock()
        if swap.expect == 0:
            row = rows.to_row(swap.head, swap.leases, swap.note)
            return self._dynamo.put_if(self._table, row, rows.creation(now))
        answer = self._dynamo.update_if(self._table, head(*swap.key), rows.change(swap, now))
        return answer if isinstance(answer, ConditionFailed) else None

    def _standing(self, swap: Swap) -> bool | None:
        """Return whether a swap without an answer won, or None if it may still take effect."""
        at = head(*swap.key)
        row: Item = self._dynamo.read(self._table, [at]).get(at, {})
        if rows.is_own(swap.head, row):
            return True
        version = int(row[VERSION]["N"]) if row and not rows.is_expired(row, self._clock()) else 0
        return None if version == swap.expect else False

    def _beat(self, beat: LeaseRenewal) -> JobState | None:
        answer = self._dynamo.update_if(
            self._table, head(*beat.key), rows.renewal(beat), answers=True
        )
        try:
            return None if isinstance(answer, ConditionFailed) else rows.from_row(answer).head
        except Exception:
            # The claim counts as lost. Its return reads the state again and reports the error.
            return None


def _named(row: Item) -> Key:
    """Return the job of an unreadable row, or its raw key."""
    at = key_of(row)
    try:
        return Key(*parse_head(at))
    except ValueError:
        return Key(at.pk, at.sk)


def _begun(heads: Iterator[JobState]) -> Iterator[JobState]:
    """Read the first page now, so that the ranges are read in parallel."""
    first = list(islice(heads, 1))
    return chain(first, heads)
