"""The names of recurring jobs. A name belongs to one job of a tenant until that job gives it up.

A job state may have a name only while the row of the name names this job. Two rules secure this,
without a transaction and without clocks (docs/decisions/0038-unique-names.md):

1. A writer reads its job state, then writes the row with a new mark, then swaps from the version
   that it read.
2. Before a row leaves its job, the row is read. Then the job state is read, does not have the name,
   and gets another version. The row is changed only by the mark that was read.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple
from zlib import crc32

from punctual.domain.decide import Decision
from punctual.domain.errors import NameTaken, PunctualError, Unavailable
from punctual.domain.identifiers import new_write_id
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.engine.changes.plan import load_states, raise_version
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.clock import NewId
from punctual.engine.ports.job_states import JobStates, StoredState, Swap
from punctual.engine.ports.lists.job_names import NameKey, NameRow, NameRows
from punctual.engine.ports.rows import DefinitionRow, JobKey

RECURRING_KINDS = frozenset({ScheduleKind.CRON, ScheduleKind.INTERVAL})
MAX_TAKE_TRIES = 24
# Tries before the name is taken from a job without it, which may be about to be stored. The job
# with the lower id waits less, so two creators do not take the name from each other for long.
PATIENT_TRIES_OF_OLDER_JOB = 2
PATIENT_TRIES_OF_NEWER_JOB = 8


def held_name(kind: ScheduleKind, status: JobStatus, name: str) -> str | None:
    """Return the name that a job in this state has for itself, or None if it has none.

    >>> held_name(ScheduleKind.CRON, JobStatus.COMPLETED, "report")
    'report'
    >>> held_name(ScheduleKind.CRON, JobStatus.CANCELLED, "report")
    >>> held_name(ScheduleKind.FUTURE, JobStatus.SCHEDULED, "report")
    """
    return name if kind in RECURRING_KINDS and status is not JobStatus.CANCELLED else None


class NameClaim(NamedTuple):
    """A name for a job that is about to be stored with it."""

    key: JobKey
    name: str


class NameRepairs(NamedTuple):
    """What the reconciler did for the names of a page of jobs."""

    restored: Sequence[JobKey] = ()  # jobs that had lost the row of their name
    shared: Sequence[tuple[JobKey, JobKey]] = ()  # each with the other job that has its name


class _Holding(Enum):
    HOLDS = auto()
    FREE = auto()  # the row may be replaced or removed by its mark
    UNDECIDED = auto()  # the job changed meanwhile, or may be about to be stored


class JobNames:
    """Takes and gives up names of recurring jobs."""

    def __init__(self, rows: NameRows, job_states: JobStates, new_id: NewId) -> None:
        self._rows = rows
        self._job_states = job_states
        self._new_id = new_id

    def take(self, claims: Sequence[NameClaim], now: datetime) -> list[PunctualError | None]:
        """Make the rows of the names name these jobs. Return the error of each refused claim.

        The caller has read the job states before, and swaps from the versions that it read.
        """
        errors: list[PunctualError | None] = [None] * len(claims)
        pending = list(range(len(claims)))
        for tried in range(MAX_TAKE_TRIES):
            if not pending:
                return errors
            pending = self._try_to_take(claims, pending, errors, tried, now)
        for index in pending:
            name = claims[index].name
            errors[index] = Unavailable(f"Another job takes the name {name!r} now: try again.")
        return errors

    def find(self, key: JobKey, name: str) -> NameRow | None:
        """Return the row of the name if it names this job."""
        name_key = NameKey(key.tenant, name)
        row = self._rows.find([name_key]).get(name_key)
        return row if row is not None and row.job_id == key.job_id else None

    def give_up(self, rows: Sequence[NameRow]) -> None:
        """Remove rows of jobs that have swapped their name away since these rows were read."""
        self._rows.remove(rows)

    def give_up_cancelled(self, jobs: Sequence[tuple[JobState, DefinitionRow]]) -> None:
        """Remove the rows of names of cancelled jobs. A cancelled job never has a name again."""
        keys = {
            NameKey(state.tenant, definition.name): state.job_id
            for state, definition in jobs
            if state.status is JobStatus.CANCELLED and state.kind in RECURRING_KINDS
        }
        rows = self._rows.find(list(keys)) if keys else {}
        own_rows = [row for key, row in rows.items() if row.job_id == keys[key]]
        if own_rows:
            self._rows.remove(own_rows)

    def repair(self, states: Iterable[JobState], now: datetime) -> NameRepairs:
        """Put the missing rows of names that these jobs have."""
        keys = [
            JobKey(state.tenant, state.job_id)
            for state in states
            if held_name(state.kind, state.status, "") is not None
        ]
        missing = self._without_row(keys)
        # The job may have given its name up since its state was read. A superfluous row would do no
        # harm, but it is not worth a repair.
        missing = self._without_row(list(missing)) if missing else {}
        if not missing:
            return NameRepairs()
        claims = [NameClaim(key, name) for key, name in missing.items()]
        restored: list[JobKey] = []
        shared: list[tuple[JobKey, JobKey]] = []
        for claim, error in zip(claims, self.take(claims, now), strict=True):
            if error is None:
                restored.append(claim.key)
            elif isinstance(error, NameTaken):
                shared.append((claim.key, JobKey(claim.key.tenant, error.job_id)))
        return NameRepairs(restored, shared)

    def remove_unheld(self, rows: Sequence[NameRow], now: datetime) -> Sequence[NameRow]:
        """Remove the rows of jobs that do not have these names. Return these rows."""
        holdings = self._holdings(rows, rows, now)
        free_rows = [row for row in rows if holdings[row] is _Holding.FREE]
        if free_rows:
            self._rows.remove(free_rows)
        return free_rows

    def _try_to_take(
        self,
        claims: Sequence[NameClaim],
        indexes: Sequence[int],
        errors: list[PunctualError | None],
        tried: int,
        now: datetime,
    ) -> list[int]:
        """Try once to take each name. Return the indexes of the claims that need another try."""
        new_rows = [self._new_row(claims[index]) for index in indexes]
        present = [
            (index, new_row, row)
            for index, new_row, row in zip(indexes, new_rows, self._rows.put(new_rows), strict=True)
            if row is not None
        ]
        rivals = {row: new_row for _, new_row, row in present if row.job_id != new_row.job_id}
        impatient = [row for row, new_row in rivals.items() if _is_impatient(row, new_row, tried)]
        holdings = self._holdings(list(rivals), impatient, now) if rivals else {}
        pending: list[int] = []
        replacements: list[tuple[int, NameRow, NameRow]] = []
        for index, new_row, row in present:
            holding = holdings.get(row, _Holding.FREE)
            if holding is _Holding.HOLDS:
                errors[index] = NameTaken(row.name, row.job_id)
            elif holding is _Holding.UNDECIDED:
                pending.append(index)
            else:
                replacements.append((index, row, new_row))
        if replacements:
            replaced = self._rows.replace([(row, new_row) for _, row, new_row in replacements])
            pending += [
                index
                for (index, _, _), is_replaced in zip(replacements, replaced, strict=True)
                if not is_replaced
            ]
        return pending

    def _new_row(self, claim: NameClaim) -> NameRow:
        return NameRow(claim.key.tenant, claim.name, claim.key.job_id, self._new_id())

    def _holdings(
        self, rows: Sequence[NameRow], fenced_rows: Sequence[NameRow], now: datetime
    ) -> Mapping[NameRow, _Holding]:
        """Return whether the job of each row has its name.

        Only a row of `fenced_rows` can become free while its job may still take the name. Then the
        job state gets another version, so each writer that has read it loses.
        """
        keys = list(dict.fromkeys(row.job_key for row in rows))
        stored, unreadable = load_states(self._job_states, keys)
        names, undefined_keys = self._held_names(stored)
        holdings: dict[NameRow, _Holding] = {}
        unheld_rows: list[NameRow] = []
        for row in rows:
            key = row.job_key
            if key in unreadable or key in undefined_keys or names.get(key) == row.name:
                holdings[row] = _Holding.HOLDS
            elif key in stored and stored[key].state.status is JobStatus.CANCELLED:
                holdings[row] = _Holding.FREE
            else:
                holdings[row] = _Holding.UNDECIDED
                unheld_rows.append(row)
        to_fence = [row for row in unheld_rows if row in fenced_rows]
        fenced_keys = (
            self._fence([row.job_key for row in to_fence], stored, now) if to_fence else ()
        )
        for row in to_fence:
            if row.job_key in fenced_keys:
                holdings[row] = _Holding.FREE
        return holdings

    def _held_names(
        self, stored: Mapping[JobKey, StoredState]
    ) -> tuple[Mapping[JobKey, str], frozenset[JobKey]]:
        """Return the name that each job has, and the jobs without their definition."""
        refs = {
            key: (key, stored_state.state.current_rules.definition_ref)
            for key, stored_state in stored.items()
            if held_name(stored_state.state.kind, stored_state.state.status, "") is not None
        }
        definitions = self._job_states.load_definitions(list(refs.values())) if refs else {}
        names = {key: definitions[ref].name for key, ref in refs.items() if ref in definitions}
        return names, frozenset(refs.keys() - names.keys())

    def _fence(
        self, keys: Sequence[JobKey], stored: Mapping[JobKey, StoredState], now: datetime
    ) -> frozenset[JobKey]:
        """Raise the versions of these job states. Return the jobs for which this succeeded.

        A job without a state gets a blank one. A writer that has read an earlier version loses.
        """
        distinct_keys = list(dict.fromkeys(keys))
        swaps: list[Swap] = []
        for key in distinct_keys:
            write_id, stored_state = new_write_id(self._new_id), stored.get(key)
            if stored_state is None:
                # A blank state that stood there before and expired had another version.
                version = 1 + crc32(write_id.encode())
                swaps.append(Swap(blank_state(key, version, write_id, now), 0))
            else:
                state = stored_state.state
                unchanged = Decision(state=state, changed=False)
                raised = raise_version(unchanged, state.version + 1, write_id)
                swaps.append(Swap(raised.state, state.version))
        outcomes = self._job_states.swap(swaps)
        return frozenset(key for key, won in zip(distinct_keys, outcomes, strict=True) if won)

    def _without_row(self, keys: Sequence[JobKey]) -> dict[JobKey, str]:
        """Return the names that these jobs have without a row that names them."""
        stored, _ = load_states(self._job_states, keys) if keys else ({}, {})
        names, _ = self._held_names(stored)
        rows = self._rows.find([NameKey(key.tenant, name) for key, name in names.items()])
        return {
            key: name
            for key, name in names.items()
            if (row := rows.get(NameKey(key.tenant, name))) is None or row.job_key != key
        }


def _is_impatient(row: NameRow, new_row: NameRow, tried: int) -> bool:
    """Return whether the name may be taken now from a job that does not have it."""
    is_older = new_row.job_id < row.job_id
    return tried >= (PATIENT_TRIES_OF_OLDER_JOB if is_older else PATIENT_TRIES_OF_NEWER_JOB)
