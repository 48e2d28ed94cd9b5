"""Job states: one row each, with compare and swap on the version.

Each lease is a separate attribute of the row.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, key_of, prefetch
from punctual.aws.dynamodb.jobs import state_rows
from punctual.aws.dynamodb.jobs.definitions import DynamoDefinitions
from punctual.aws.dynamodb.keys import (
    HEARTBEAT_INDEX,
    STATUS_ATTR,
    VERSION_ATTR,
    RowKey,
    escape,
    parse_state_key,
    slot_partition,
    state_key,
)
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import TooMuchWork, Unavailable
from punctual.domain.identifiers import JOB_SLOTS
from punctual.domain.job_state import JobState
from punctual.domain.schedules.upcoming import next_occurrence_at, sort_by_occurrence
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import DefinitionRow, JobKey, JobStatePage, UpcomingStates, WalkPage

ALL_STATES_PAGE_SIZE = 500  # states in a page when all states of a tenant are read
MAX_SCHEDULED_STATES = 10_000  # states of a tenant that one forecast reads


class DynamoJobStates:
    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._definitions = DynamoDefinitions(dynamo, table)

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        items = self._dynamo.read(self._table, [state_key(*key) for key in keys])
        now = self._clock()
        stored_states = (
            state_rows.from_row(row)
            for row in items.values()
            if not state_rows.is_expired(row, now)
        )
        return {
            JobKey(stored.state.tenant, stored.state.job_id): stored for stored in stored_states
        }

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        return self._dynamo.pool.map(self._swap, swaps)

    def renew_leases(self, renewals: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        return self._dynamo.pool.map(self._renew, renewals)

    def put_definitions(self, definitions: Sequence[DefinitionRow]) -> None:
        self._definitions.put(definitions)

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return self._definitions.get(refs)

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        """Return a page of jobs, newest first, merged from the sixteen slots.

        The first query of each slot reads twice its share of the page.
        """
        high = None if before is None else escape(before)
        slot_limit = limit // JOB_SLOTS * 2 + 4
        slot_states = [
            self._slot_states(
                KeyRange(
                    slot_partition(tenant, slot), high=high, excludes_high=True, newest_first=True
                ),
                slot_limit,
            )
            for slot in range(JOB_SLOTS)
        ]
        merged = heapq.merge(
            *self._dynamo.pool.map(prefetch, slot_states),
            key=lambda state: state.job_id,
            reverse=True,
        )
        states = list(islice((state for state in merged if not state.is_blank), limit + 1))
        page_states = states[:limit]
        definition_ids = [
            (JobKey(tenant, state.job_id), state.current_rules.definition_ref)
            for state in page_states
        ]
        definitions = self.load_definitions(definition_ids)
        return JobStatePage.from_rows(page_states, definition_ids, definitions, len(states) > limit)

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        """Return the jobs that are due next, or None if the tenant has too many jobs.

        All states are read and sorted because no index has this order.
        """
        slot_limit = 2 * -(-max_states // JOB_SLOTS)
        states_by_slot = self._dynamo.pool.map(
            lambda slot: list(
                islice(
                    self._slot_states(KeyRange(slot_partition(tenant, slot)), slot_limit + 1),
                    slot_limit + 1,
                )
            ),
            range(JOB_SLOTS),
        )
        if any(len(states) > slot_limit for states in states_by_slot):
            return None
        return UpcomingStates(
            *sort_by_occurrence(chain.from_iterable(states_by_slot), after, end, limit)
        )

    def scheduled_states(self, tenant: str, end: datetime) -> Sequence[JobState]:
        """Return the jobs that are due before `end`. All states are read, as by `upcoming`."""
        slot_limit = -(-MAX_SCHEDULED_STATES // JOB_SLOTS)
        states_by_slot = self._dynamo.pool.map(
            lambda slot: list(
                islice(
                    self._slot_states(KeyRange(slot_partition(tenant, slot)), ALL_STATES_PAGE_SIZE),
                    slot_limit + 1,
                )
            ),
            range(JOB_SLOTS),
        )
        if any(len(states) > slot_limit for states in states_by_slot):
            raise TooMuchWork(
                f"The tenant has too many jobs for one answer: about {MAX_SCHEDULED_STATES:,} can "
                "be read, of any status."
            )
        return [
            state
            for state in chain.from_iterable(states_by_slot)
            if (at := next_occurrence_at(state)) is not None and at < end
        ]

    def load_heartbeat_states(self, tenant: str, slot_limit: int) -> Mapping[JobKey, StoredState]:
        """Return the states of jobs with a heartbeat, at most `slot_limit` of each slot."""
        slots = [slot_partition(tenant, slot) for slot in range(JOB_SLOTS)]
        keys_by_slot = self._dynamo.pool.map(
            lambda slot_key: self._dynamo.query_index(
                self._table, HEARTBEAT_INDEX, slot_key, slot_limit
            ),
            slots,
        )
        return self.load(
            [JobKey(*parse_state_key(row_key)) for row_key in chain.from_iterable(keys_by_slot)]
        )

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        """Return a page of all job states. The cursor is the last key; keys contain no spaces."""
        after = None if cursor is None else RowKey(*cursor.split(" "))
        filter_arguments = {
            "FilterExpression": "attribute_exists(#state)",
            "ExpressionAttributeNames": {"#state": STATUS_ATTR},
        }
        items, last_key = self._dynamo.scan(self._table, after, limit, filter_arguments)
        now = self._clock()
        states: list[JobState] = []
        unreadable: list[tuple[JobKey, str]] = []
        for row in items:
            try:
                if not state_rows.is_expired(row, now):
                    states.append(state_rows.from_row(row).state)
            except Exception as error:
                unreadable.append((_unreadable_key(row), type(error).__name__))
        return WalkPage(
            states, None if last_key is None else f"{last_key.pk} {last_key.sk}", unreadable
        )

    def _slot_states(self, key_range: KeyRange, page_size: int) -> Iterator[JobState]:
        return self._unexpired_states(self._dynamo.query(self._table, key_range, page_size))

    def _unexpired_states(self, items: Iterable[Item]) -> Iterator[JobState]:
        now = self._clock()
        for row in items:
            if not state_rows.is_expired(row, now):
                yield state_rows.from_row(row).state

    def _swap(self, swap: Swap) -> bool:
        """Write if the version is the expected one. Return whether this swap won.

        A rejected write has won if the row carries its write id. After a write without an answer,
        a read decides.
        """
        try:
            failure = self._write_swap(swap)
        except Unavailable:
            has_won = self._has_won(swap)
            if has_won is None:
                raise
            return has_won
        return failure is None or state_rows.is_own(swap.state, failure.item)

    def _write_swap(self, swap: Swap) -> ConditionFailed | None:
        now = self._clock()
        if swap.expected_version == 0:
            row = state_rows.to_row(swap.state, swap.leases, swap.note)
            return self._dynamo.put_if(self._table, row, state_rows.create_condition(now))
        outcome = self._dynamo.update_if(
            self._table, state_key(*swap.key), state_rows.swap_condition(swap, now)
        )
        return outcome if isinstance(outcome, ConditionFailed) else None

    def _has_won(self, swap: Swap) -> bool | None:
        """Return whether a swap without an answer won, or None if it may still take effect."""
        row_key = state_key(*swap.key)
        row: Item = self._dynamo.read(self._table, [row_key]).get(row_key, {})
        if state_rows.is_own(swap.state, row):
            return True
        version = (
            int(row[VERSION_ATTR]["N"])
            if row and not state_rows.is_expired(row, self._clock())
            else 0
        )
        return None if version == swap.expected_version else False

    def _renew(self, lease_renewal: LeaseRenewal) -> JobState | None:
        outcome = self._dynamo.update_if(
            self._table,
            state_key(*lease_renewal.key),
            state_rows.renew_condition(lease_renewal),
            returns_row=True,
        )
        try:
            return (
                None if isinstance(outcome, ConditionFailed) else state_rows.from_row(outcome).state
            )
        except Exception:
            # The claim counts as lost. Its return reads the state again and reports the error.
            return None


def _unreadable_key(row: Item) -> JobKey:
    """Return the job of an unreadable row, or its raw key."""
    row_key = key_of(row)
    try:
        return JobKey(*parse_state_key(row_key))
    except ValueError:
        return JobKey(row_key.pk, row_key.sk)
