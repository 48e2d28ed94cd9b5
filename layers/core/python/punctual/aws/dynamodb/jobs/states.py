"""Job states: one row each, with compare and swap on the version.

Each lease is a separate attribute of the row.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from json import dumps, loads
from typing import Any

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, key_of
from punctual.aws.dynamodb.jobs import state_rows
from punctual.aws.dynamodb.jobs.definitions import DynamoDefinitions
from punctual.aws.dynamodb.jobs.names import MARK_ATTR, parse_name_row
from punctual.aws.dynamodb.keys import (
    STATUS_ATTR,
    VERSION_ATTR,
    RowKey,
    parse_state_key,
    state_key,
)
from punctual.aws.dynamodb.lists.job_row_reader import JobRowReader
from punctual.aws.dynamodb.lists.operation_rows import ITEM_SET_ATTR
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import TooMuchWork, Unavailable
from punctual.domain.job_state import JobState
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap, WalkPage
from punctual.engine.ports.lists.job_names import NameRow
from punctual.engine.ports.rows import DefinitionRow, JobKey, JobStatePage, UpcomingStates

WALK_SEGMENTS = 4  # parts of the table that the walk reads in parallel
# A job state has the one attribute, the row of a name has the other. Definitions have neither.
_WALKED_ROWS = {
    "FilterExpression": "attribute_exists(#mark) OR "
    "(attribute_exists(#state) AND attribute_not_exists(#items))",
    "ExpressionAttributeNames": {
        "#state": STATUS_ATTR,
        "#mark": MARK_ATTR,
        "#items": ITEM_SET_ATTR,  # of an operation
    },
}
_SEGMENT_START, _SEGMENT_END = "start", "end"
MAX_SCHEDULED_STATES = 10_000  # states of a tenant that one forecast reads


class DynamoJobStates:
    def __init__(
        self, dynamo: DynamoClient, table: str, clock: Clock, listed_jobs: JobRowReader
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._definitions = DynamoDefinitions(dynamo, table)
        self._listed_jobs = listed_jobs

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
        """Return a page of jobs, newest first: those that the list names, as they are now."""
        listed = self._listed_jobs.page(tenant, before, limit)
        states = self._load_listed(JobKey(tenant, job_id) for job_id in listed.job_ids)
        definition_ids = [
            (JobKey(tenant, state.job_id), state.current_rules.definition_ref) for state in states
        ]
        definitions = self.load_definitions(definition_ids)
        page = JobStatePage.from_rows(states, definition_ids, definitions, has_more=False)
        return page._replace(before=listed.before)

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        """Return the jobs that are due next, or None if the tenant has too many jobs.

        The rows of all jobs are read and sorted, because no index has this order.
        """
        listed_jobs = self._listed_jobs.read_all(tenant)
        if listed_jobs is None:
            return None
        positions = [
            ((job.row.next_at, job.job_id), job.row.repeats)
            for job in listed_jobs
            if job.row.next_at is not None and job.row.next_at < end
        ]
        repeating = [
            job_id for (at, job_id), repeats in positions if (at, job_id) <= after and repeats
        ]
        page = sorted(position for position, _ in positions if position > after)[:limit]
        if len(repeating) > max_states:
            return None
        job_ids = [*repeating, *(job_id for _, job_id in page)]
        states = self._load_listed(JobKey(tenant, job_id) for job_id in job_ids)
        return UpcomingStates(states, page[-1] if page and len(page) == limit else None)

    def scheduled_states(self, tenant: str, end: datetime) -> Sequence[JobState]:
        """Return the jobs that are due before `end`, as the rows of the list say."""
        listed_jobs = self._listed_jobs.read_all(tenant)
        job_keys = [
            JobKey(tenant, job.job_id)
            for job in listed_jobs or ()
            if job.row.next_at is not None and job.row.next_at < end
        ]
        if listed_jobs is None or len(job_keys) > MAX_SCHEDULED_STATES:
            raise TooMuchWork(
                f"The tenant has too many jobs for one answer: about {MAX_SCHEDULED_STATES:,} can "
                "be read."
            )
        return self._load_listed(job_keys)

    def load_held_states(self, tenant: str, limit: int) -> Mapping[JobKey, StoredState]:
        """Return the states of up to `limit` jobs with a run that an executor holds."""
        return self.load(self._listed_jobs.held_jobs(tenant, limit))

    def _load_listed(self, job_keys: Iterable[JobKey]) -> list[JobState]:
        """Return the states in the order of the keys, without jobs that are gone."""
        ordered_keys = list(job_keys)
        stored_states = self.load(ordered_keys)
        return [
            stored_states[key].state
            for key in ordered_keys
            if key in stored_states and not stored_states[key].state.is_blank
        ]

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        """Return a page of all job states and names, from all segments of the table in parallel.

        The cursor is a list in JSON with the place of each segment: its last key, or a word before
        its first page and after its last one.
        """
        places: list[Any] = [_SEGMENT_START] * WALK_SEGMENTS if cursor is None else loads(cursor)
        open_segments = [number for number, place in enumerate(places) if place != _SEGMENT_END]
        segment_limit = -(-limit // WALK_SEGMENTS)
        pages = self._dynamo.pool.map(
            lambda number: self._scan_segment(number, places[number], segment_limit), open_segments
        )
        now = self._clock()
        states: list[JobState] = []
        names: list[NameRow] = []
        unreadable: list[tuple[JobKey, str]] = []
        for number, (items, place) in zip(open_segments, pages, strict=True):
            places[number] = place
            for row in items:
                try:
                    if MARK_ATTR in row:
                        names.append(parse_name_row(row))
                    elif not state_rows.is_expired(row, now):
                        states.append(state_rows.from_row(row).state)
                except Exception as error:
                    unreadable.append((_unreadable_key(row), type(error).__name__))
        is_done = all(place == _SEGMENT_END for place in places)
        return WalkPage(states, None if is_done else dumps(places), unreadable, names)

    def _scan_segment(self, number: int, place: Any, limit: int) -> tuple[list[Item], Any]:
        """Return the rows of a page, and the place to continue from."""
        after = None if place == _SEGMENT_START else RowKey(*place)
        items, last_key = self._dynamo.scan(
            self._table, after, limit, _WALKED_ROWS, (number, WALK_SEGMENTS)
        )
        return items, _SEGMENT_END if last_key is None else last_key

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
