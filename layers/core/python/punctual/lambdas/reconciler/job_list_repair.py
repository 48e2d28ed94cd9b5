"""Repairs the rows of jobs in the lists: those that are missing or wrong, and those without a job.

A row follows its job state within seconds. So a job that changed in the last minutes is left out.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient, key_of
from punctual.aws.dynamodb.lists.job_row import NO_HEAD, derive_job_row
from punctual.aws.dynamodb.lists.job_rows import JobRowChange, JobRows
from punctual.aws.dynamodb.lists.keys import parse_job_row_key
from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.status.definitions import DefinitionCache

MIN_REPAIRED_AGE = timedelta(minutes=5)  # since the last change of a job
BLANK_ATTR = "blank"  # of the placeholder of a job that does not exist
ROW_SCAN_LIMIT = 1_000  # rows in a page of the walk over the lists


class RemovedRows(NamedTuple):
    row_count: int
    cursor: str | None  # the key to continue after; None at the end


class JobListRepair:
    def __init__(
        self,
        job_rows: JobRows,
        definitions: DefinitionCache,
        dynamo: DynamoClient,
        *,
        jobs_table: str,
        lists_table: str,
    ) -> None:
        self._job_rows = job_rows
        self._definitions = definitions
        self._dynamo = dynamo
        self._jobs_table = jobs_table
        self._lists_table = lists_table

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

    def remove_orphans(self, cursor: str | None) -> RemovedRows:
        """Remove the rows of one page of the lists that have no job, or stand in a wrong slot.

        Slots are wrong after a change of their number. An unreadable job state keeps its row.
        """
        after = None if cursor is None else keys.RowKey(*cursor.split(" "))
        held_attrs = {
            "FilterExpression": "attribute_exists(#data)",
            "ExpressionAttributeNames": {"#data": keys.DATA_ATTR},
        }
        items, last_key = self._dynamo.scan(self._lists_table, after, ROW_SCAN_LIMIT, held_attrs)
        jobs_by_row = {
            row_key: job_key
            for row_key in map(key_of, items)
            if (job_key := parse_job_row_key(row_key)) is not None
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
        return RemovedRows(
            len(orphans), None if last_key is None else f"{last_key.pk} {last_key.sk}"
        )


def _last_change_at(state: JobState) -> datetime:
    times: Iterable[datetime] = (
        *(run.changed_at for run in (*state.runs, *state.unrecorded)),
        *(waiting.created_at for waiting in state.wait_queue),
        state.ended_at or state.updated_at,
    )
    return max(state.updated_at, *times)
