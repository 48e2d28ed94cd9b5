"""Writes the rows of the job list, in the commit that changes the job states."""

from collections.abc import Sequence
from typing import Any

import msgspec

from punctual.domain.job_state import JobState
from punctual.engine.ports.lists.job_index import searched_texts
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.node.sqlite.rows import insert_rows
from punctual.node.sqlite.transaction import Transaction

_JOB_LIST_COLUMNS = "tenant, job_id, status, kind, created_by, name, tags, search"
_INSERT_JOB = f"INTO job_list ({_JOB_LIST_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_TAG = "INSERT OR IGNORE INTO job_tags (tenant, key, value, job_id) VALUES (?, ?, ?, ?)"
_DELETE_TAG = "DELETE FROM job_tags WHERE tenant = ? AND key = ? AND value = ? AND job_id = ?"
_NO_TAGS = "{}"
_decode_tags = msgspec.json.Decoder(dict[str, str]).decode

_Row = tuple[str, str, str, str, str, str, str, str]


class JobListRows:
    """Collects the list rows that one flush of job states changes.

    A change of a job state that keeps status and definition writes no row.
    """

    def __init__(self, transaction: Transaction, definitions: SqliteDefinitions) -> None:
        self._transaction = transaction
        self._definitions = definitions
        self._new_states: list[JobState] = []
        self._redefined_states: list[JobState] = []
        self._statuses: list[tuple[str, str, str]] = []

    def add(self, old: JobState | None, new: JobState) -> None:
        if new.is_blank:
            return
        if old is None or old.is_blank:
            self._new_states.append(new)
        elif _definition_ref(old) != _definition_ref(new):
            self._redefined_states.append(new)
        elif old.status is not new.status:
            self._statuses.append((new.status._value_, new.tenant, new.job_id))

    def write(self) -> None:
        """Write the collected rows. The caller has begun the transaction."""
        db = self._transaction.db
        if self._new_states:
            rows = self._rows(self._new_states)
            insert_rows(db, f"INSERT OR REPLACE {_INSERT_JOB}", rows)
            db.executemany(_INSERT_TAG, _tag_rows(rows))
        for row in self._rows(self._redefined_states):
            self._replace(row)
        if self._statuses:
            db.executemany(
                "UPDATE job_list SET status = ? WHERE tenant = ? AND job_id = ?", self._statuses
            )

    def _replace(self, row: _Row) -> None:
        """Write the row of a job with a new definition, unless it shows the same."""
        db, key = self._transaction.db, row[:2]
        stored = db.execute(
            f"SELECT {_JOB_LIST_COLUMNS} FROM job_list WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if stored == row:
            return
        if stored is not None:
            db.executemany(_DELETE_TAG, _tag_rows([stored]))
        db.execute(f"INSERT OR REPLACE {_INSERT_JOB}", row)
        db.executemany(_INSERT_TAG, _tag_rows([row]))

    def _rows(self, states: Sequence[JobState]) -> list[_Row]:
        refs = [(JobKey(state.tenant, state.job_id), _definition_ref(state)) for state in states]
        definitions = self._definitions.find(refs)
        return [_row(state, definitions.get(ref)) for state, ref in zip(states, refs, strict=True)]


def remove_jobs(transaction: Transaction, keys: Sequence[JobKey]) -> None:
    """Remove the rows of jobs that are removed from the store."""
    db = transaction.db
    for key in keys:
        for row in db.execute(
            f"SELECT {_JOB_LIST_COLUMNS} FROM job_list WHERE tenant = ? AND job_id = ?", key
        ).fetchall():
            db.executemany(_DELETE_TAG, _tag_rows([row]))
    db.executemany("DELETE FROM job_list WHERE tenant = ? AND job_id = ?", keys)


def _row(state: JobState, definition: DefinitionRow | None) -> _Row:
    """Return the row of a job. Without a readable definition it passes no filter but its own."""
    created_by, name, tags, search = "", "", _NO_TAGS, ""
    if definition is not None:
        created_by, name = definition.created_by, definition.name
        search = "\n".join(searched_texts(name, definition.tags))
        if definition.tags:
            tags = msgspec.json.encode(definition.tags).decode()
    return (
        *(state.tenant, state.job_id, state.status._value_, state.kind._value_),
        *(created_by, name, tags, search),
    )


def _tag_rows(rows: Sequence[_Row]) -> list[tuple[Any, ...]]:
    return [
        (tenant, key, value, job_id)
        for tenant, job_id, _, _, _, _, tags, _ in rows
        if tags != _NO_TAGS
        for key, value in _decode_tags(tags).items()
    ]


def _definition_ref(state: JobState) -> str:
    return state.rules[state.definition].definition_ref
