"""Repairs the rows of jobs in the lists: those that are missing or wrong, and those without a job.

A row follows its job state within seconds. So a job that changed in the last minutes is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from json import dumps, loads
from typing import NamedTuple
from zlib import crc32

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.lists.job_row import NO_HEAD, derive_job_row
from punctual.aws.dynamodb.lists.job_rows import JobRowChange, JobRows
from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.status.definitions import DefinitionCache

MIN_REPAIRED_AGE = timedelta(minutes=5)  # since the last change of a job
BLANK_ATTR = "blank"  # of the placeholder of a job that does not exist
LISTED_PAGE_SIZE = 1_000  # rows in a page of one slot
MAX_WALKED_TENANTS = 1_000  # with rows that one walk compares with their jobs


class RemovedRows(NamedTuple):
    row_count: int
    cursor: str | None  # the keys to continue after; None at the end


class JobListRepair:
    def __init__(
        self,
        job_rows: JobRows,
        definitions: DefinitionCache,
        dynamo: DynamoClient,
        jobs_table: str,
    ) -> None:
        self._job_rows = job_rows
        self._definitions = definitions
        self._dynamo = dynamo
        self._jobs_table = jobs_table

    def repair(self, states: Sequence[JobState], now: datetime) -> Sequence[JobKey]:
        """Write the rows that are missing or differ. Return their jobs.

        Count the rows that a crashed batch has not counted.
        """
        settled = {
            JobKey(state.tenant, state.job_id): state
            for state in states
            if not state.is_blank and _last_change_at(state) <= now - MIN_REPAIRED_AGE
        }
        if not settled:
            return ()
        refs = {key: (key, state.current_rules.definition_ref) for key, state in settled.items()}
        heads = self._definitions.load(refs.values())
        stored = self._job_rows.load(list(settled))
        changes = []
        for key, state in settled.items():
            row = derive_job_row(state, heads.get(refs[key], NO_HEAD))
            is_right = key in stored and (
                stored[key].row == row or stored[key].version > state.version
            )
            if not is_right:
                expires_at = job_expires_at(state)
                changes.append(
                    JobRowChange(
                        *(key, state.version, row, (), expires_at),
                        moves_class=True,
                        replaces_same=True,
                    )
                )
        self._job_rows.write(changes)
        self._job_rows.settle(stored.values())
        return [change.key for change in changes]

    def remove_orphans(self, tenant: str, cursor: str | None) -> RemovedRows:
        """Remove rows of a tenant without a job or in a wrong slot, after a read of each slot.

        Slots are wrong after a change of their number. An unreadable job state keeps its row.
        """
        places: Mapping[str, str | None] = (
            dict.fromkeys(self._job_rows.partitions(tenant)) if cursor is None else loads(cursor)
        )
        pages = self._dynamo.pool.map(
            lambda place: self._job_rows.key_page(place[0], place[1], LISTED_PAGE_SIZE),
            list(places.items()),
        )
        following = {
            pk: page.last_sk
            for pk, page in zip(places, pages, strict=True)
            if page.last_sk is not None
        }
        jobs_by_row = {
            row_key: JobKey(tenant, keys.unescape(row_key.sk))
            for page in pages
            for row_key in page.row_keys
        }
        state_keys = {job_key: keys.state_key(*job_key) for job_key in jobs_by_row.values()}
        states = self._dynamo.read(self._jobs_table, list(state_keys.values()))
        existing = {state_key for state_key, item in states.items() if BLANK_ATTR not in item}
        orphans = [
            row_key
            for row_key, job_key in jobs_by_row.items()
            if state_keys[job_key] not in existing or row_key != self._job_rows.row_key(job_key)
        ]
        if orphans:
            self._job_rows.remove(orphans)
        return RemovedRows(len(orphans), dumps(following) if following else None)


def choose_walked_tenants(
    tenants: Iterable[str], states: Sequence[JobState], started_at: datetime
) -> tuple[str, ...]:
    """Return the tenants of a walk after a page of job states.

    If they are too many, each walk draws others: those of the lowest rank.
    """
    met = {*tenants, *(state.tenant for state in states)}
    return tuple(sorted(met, key=lambda tenant: _rank(started_at, tenant))[:MAX_WALKED_TENANTS])


def _rank(started_at: datetime, tenant: str) -> int:
    return crc32(f"{keys.time_key(started_at)} {tenant}".encode())


def _last_change_at(state: JobState) -> datetime:
    times: Iterable[datetime] = (
        *(run.changed_at for run in (*state.runs, *state.unrecorded)),
        *(waiting.created_at for waiting in state.wait_queue),
        state.ended_at or state.updated_at,
    )
    return max(state.updated_at, *times)
