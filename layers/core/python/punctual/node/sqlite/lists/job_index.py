"""Reads the list of jobs: a bounded number of short rows, in the order of the list."""

from collections.abc import Callable
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from punctual.domain.job_state import Priority
from punctual.domain.run import MAX_START_DELAY
from punctual.engine.ports.lists.job_index import (
    MAX_JOB_NAME_CHARACTERS,
    JobFilters,
    JobHealth,
    JobIndexPage,
    JobQuery,
    JobSort,
    Position,
)
from punctual.engine.queries.job_order import (
    WITHOUT_NEXT_TIME,
    next_run_position,
    next_time_of,
    sort_positions,
)
from punctual.node.sqlite.rows import from_micros, to_micros
from punctual.node.sqlite.state_rows import SLOT_NUMBERS
from punctual.node.sqlite.transaction import Transaction

# Rows that one call reads at most. A row that needs a search in another table costs ten times one
# that is read in order.
MAX_ROWS_IN_ORDER = 10_000
MAX_ROWS_SEARCHED = 2_500
MAX_HISTORIES_SEARCHED = 1_000  # jobs; their runs lie far apart
MAX_LATE_JOBS = 5_000  # of a tenant with more, all jobs are read
_BEFORE_TIMELESS_JOBS: Position = (WITHOUT_NEXT_TIME, "")
_ID = "job_id"
_LAST_CHARACTER = "\U0010ffff"
# The index of times also holds the ends of pauses. A paused job has no next time in the list.
_HAS_NEXT_TIME = "job_list.status = 'SCHEDULED'"
_HAS_NO_NEXT_TIME = (
    "(listed.status != 'SCHEDULED' OR EXISTS (SELECT 1 FROM heads "
    "WHERE heads.tenant = listed.tenant AND heads.job_id = listed.job_id AND coming IS NULL))"
)
# A row of the history that is no SKIPPED or MISSED one. Few rows are read for each job, so a job
# with others before them passes, and its reader drops it.
_NEVER_RAN = (
    "NOT EXISTS (SELECT 1 FROM (SELECT status FROM runs WHERE runs.tenant = {row}.tenant "
    "AND runs.job_id = {row}.job_id ORDER BY run_id DESC LIMIT 5) "
    "WHERE status NOT IN ('SKIPPED', 'MISSED'))"
)
_HAS_TAG = (
    "EXISTS (SELECT 1 FROM job_tags WHERE tenant = ? AND key = ? AND value = ? "
    "AND job_tags.job_id = {row}.job_id)"
)
_IS_FAILING = (
    "EXISTS (SELECT 1 FROM failures WHERE failures.tenant = {row}.tenant "
    "AND failures.job_id = {row}.job_id)"
)
_ROW = "{row}"  # in a condition: the list row
_Values = tuple[Any, ...]


class _Rows(NamedTuple):
    """A range of rows in the order of the list, as parts of SQL. The filters come on top."""

    source: str  # from FROM to the last condition
    values: _Values
    order: str
    position: tuple[str, ...]  # the columns of a position
    max_rows: int = MAX_ROWS_IN_ORDER
    is_job_list: bool = True  # otherwise each row names a job, and its list row is searched
    condition: str = ""  # one more, which the rows pass beside the filters
    to_position: Callable[[_Values], Position] = tuple


class _Checks(NamedTuple):
    """Conditions on a list row, which stands for `_ROW` in them."""

    conditions: tuple[str, ...] = ()
    values: _Values = ()

    def adding(self, condition: str, *values: Any) -> "_Checks":
        return _Checks((*self.conditions, condition), (*self.values, *values))


class SqliteJobIndex:
    """The job list of the node. It is never behind the job states."""

    def __init__(self, transaction: Transaction, flush: Callable[[], None]) -> None:
        self._transaction = transaction
        self._flush = flush

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        if query.sort is JobSort.NEXT_RUN and after is not None:
            next_time_of(after)  # an error within the transaction would roll it back
        with self._transaction:
            self._flush()
            checks = self._checks(tenant, query.filters, now)
            if query.sort is JobSort.CREATED:
                rows = _by_creation(tenant, query.filters, after)
            elif query.sort is JobSort.NAME:
                rows = _by_name(tenant, query.filters, after)
            elif after is not None and after[0] == WITHOUT_NEXT_TIME:
                rows = _without_next_time(tenant, after[1])
            else:
                return self._page_by_next_time(tenant, checks, limit, after)
            if query.filters.health is not None:
                rows = rows._replace(max_rows=min(rows.max_rows, _max_rows(query.filters)))
            positions, end = self._read(tenant, rows, checks, limit + 1)
            return _cut(positions, limit, end)

    def _page_by_next_time(
        self, tenant: str, checks: "_Checks", limit: int, after: Position | None
    ) -> JobIndexPage:
        """Return jobs with a next time. The jobs without one begin with a page of their own.

        The index of times has two parts. Up to the place where both are read, they are merged.
        """
        positions: list[Position] = []
        ends: list[Position] = [_BEFORE_TIMELESS_JOBS]
        for repeats in (0, 1):
            rows = _by_next_time(tenant, repeats, after)
            part, end = self._read(tenant, rows, checks, limit + 1)
            positions += part
            ends += [] if end is None else [end]
        complete_until = min(ends)
        merged = sort_positions(JobSort.NEXT_RUN, positions)
        complete = [position for position in merged if position <= complete_until]
        return _cut(complete, limit, complete_until)

    def _checks(self, tenant: str, filters: JobFilters, now: datetime) -> "_Checks":
        """Return the filters as conditions. The one for late runs may pass other jobs too."""
        checks = _filter_checks(tenant, filters)
        if filters.health is JobHealth.FAILING:
            return checks.adding(_IS_FAILING)
        if filters.health is JobHealth.NEVER_RAN:
            return checks.adding(_NEVER_RAN)
        if filters.health is JobHealth.LATE:
            job_ids = self._jobs_with_late_runs(tenant, to_micros(now - MAX_START_DELAY))
            if len(job_ids) <= MAX_LATE_JOBS:
                return checks.adding(
                    f"{_ROW}.job_id IN (SELECT value FROM json_each(?))",
                    msgspec.json.encode(job_ids).decode(),
                )
        return checks

    def _jobs_with_late_runs(self, tenant: str, due_before: int) -> list[str]:
        """Return jobs with a queued run that was due, at least one more than counts as many."""
        job_ids: set[str] = set()
        for slot in chain.from_iterable(SLOT_NUMBERS.values()):
            for priority in Priority:
                rows = self._transaction.db.execute(
                    "SELECT job_id FROM queue WHERE slot = ? AND tenant = ? AND priority = ? "
                    "AND due < ? LIMIT ?",
                    (slot, tenant, int(priority), due_before, MAX_LATE_JOBS + 1),
                )
                job_ids.update(job_id for (job_id,) in rows.fetchall())
        return list(job_ids)

    def _read(
        self, tenant: str, rows: _Rows, checks: "_Checks", limit: int
    ) -> tuple[list[Position], Position | None]:
        """Return up to `limit` positions, and the last one that was read if more may follow."""
        db = self._transaction.db
        columns = ", ".join(rows.position)
        selected = db.execute(*_statement(tenant, rows, checks, limit)).fetchall()
        positions = [rows.to_position(row) for row in selected]
        if len(positions) == limit:
            return positions, positions[-1]
        last = db.execute(
            f"SELECT {columns} {rows.source} ORDER BY {rows.order} LIMIT 1 OFFSET ?",
            (*rows.values, rows.max_rows - 1),
        ).fetchone()
        return positions, None if last is None else rows.to_position(last)


def _max_rows(filters: JobFilters) -> int:
    return MAX_HISTORIES_SEARCHED if filters.health is JobHealth.NEVER_RAN else MAX_ROWS_SEARCHED


def _cut(positions: list[Position], limit: int, end: Position | None) -> JobIndexPage:
    if len(positions) > limit:
        return JobIndexPage(positions[:limit], positions[limit - 1])
    return JobIndexPage(positions, end)


def _statement(tenant: str, rows: _Rows, checks: _Checks, limit: int) -> tuple[str, _Values]:
    """Return the SELECT for the rows that pass the filters, and its values.

    A row without a name lacks its definition. It passes all filters, so that its reader reports it.
    """
    alias = "listed" if rows.is_job_list else "job_list"
    conditions = [condition.replace(_ROW, alias) for condition in checks.conditions]
    selected = "*" if rows.is_job_list else ", ".join(rows.position)
    join = ""
    join_values: _Values = ()
    if not rows.is_job_list:
        join = f"CROSS JOIN job_list ON job_list.tenant = ? AND job_list.job_id = listed.{_ID} "
        join_values = (tenant,)
    columns = ", ".join(f"listed.{column}" for column in rows.position)
    statement = (
        f"SELECT {columns} FROM "
        f"(SELECT {selected} {rows.source} ORDER BY {rows.order} LIMIT ?) listed "
        f"{join}WHERE ({' AND '.join(conditions) or '1'} OR {alias}.name = '') "
        f"AND {rows.condition or '1'} LIMIT ?"
    )
    return statement, (*rows.values, rows.max_rows, *join_values, *checks.values, limit)


def _by_creation(tenant: str, filters: JobFilters, after: Position | None) -> _Rows:
    source = "FROM job_list WHERE tenant = ?"
    values = _values(tenant)
    has_tags = bool(filters.tags) and not filters.name
    if filters.name:
        source = "FROM job_list INDEXED BY job_list_by_name WHERE tenant = ? AND name = ?"
        values = (tenant, filters.name)
    elif has_tags:
        source = "FROM job_tags WHERE tenant = ? AND key = ? AND value = ?"
        values = (tenant, *filters.tags[0])
    if after is not None:
        source, values = f"{source} AND job_id < ?", (*values, after[-1])
    max_rows = MAX_ROWS_SEARCHED if has_tags else MAX_ROWS_IN_ORDER
    return _Rows(source, values, "job_id DESC", (_ID,), max_rows, is_job_list=not has_tags)


def _by_name(tenant: str, filters: JobFilters, after: Position | None) -> _Rows:
    source = "FROM job_list INDEXED BY job_list_by_name WHERE tenant = ?"
    values = _values(tenant)
    if after is not None:
        source, values = f"{source} AND (name, job_id) > (?, ?)", (*values, *after)
    if filters.name:
        source, values = f"{source} AND name = ?", (*values, filters.name)
    elif filters.name_prefix:
        last_name = filters.name_prefix + _LAST_CHARACTER * MAX_JOB_NAME_CHARACTERS
        source, values = (
            f"{source} AND name BETWEEN ? AND ?",
            (*values, filters.name_prefix, last_name),
        )
    return _Rows(source, values, "name, job_id", ("name", _ID), MAX_ROWS_SEARCHED)


def _by_next_time(tenant: str, repeats: int, after: Position | None) -> _Rows:
    source = (
        "FROM heads INDEXED BY heads_coming WHERE tenant = ? AND again = ? AND coming IS NOT NULL"
    )
    values = _values(tenant, repeats)
    if after is not None and (at := next_time_of(after)) is not None:
        source, values = (
            f"{source} AND (coming, job_id) > (?, ?)",
            (*values, to_micros(at), after[1]),
        )
    return _Rows(
        source,
        values,
        "coming, job_id",
        ("coming", _ID),
        MAX_ROWS_SEARCHED,
        is_job_list=False,
        condition=_HAS_NEXT_TIME,
        to_position=lambda row: next_run_position(from_micros(row[0]), row[1]),
    )


def _without_next_time(tenant: str, after_id: str) -> _Rows:
    source, values = "FROM job_list WHERE tenant = ?", _values(tenant)
    if after_id:
        source, values = f"{source} AND job_id < ?", (tenant, after_id)
    return _Rows(
        source,
        values,
        "job_id DESC",
        (_ID,),
        MAX_ROWS_SEARCHED,
        condition=_HAS_NO_NEXT_TIME,
        to_position=lambda row: next_run_position(None, row[0]),
    )


def _values(*values: Any) -> _Values:
    return values


def _filter_checks(tenant: str, filters: JobFilters) -> _Checks:
    """Return the conditions of all filters but `health`."""
    checks = _Checks()
    if filters.status:
        places = ", ".join("?" * len(filters.status))
        checks = checks.adding(f"{_ROW}.status IN ({places})", *sorted(filters.status))
    for column, value in (
        ("kind", filters.schedule_type),
        ("name", filters.name),
        ("created_by", filters.created_by),
    ):
        if value:
            checks = checks.adding(f"{_ROW}.{column} = ?", value)
    if filters.name_prefix:
        prefix = filters.name_prefix
        checks = checks.adding(f"substr({_ROW}.name, 1, ?) = ?", len(prefix), prefix)
    if filters.text:
        checks = checks.adding(f"instr({_ROW}.search, ?) > 0", filters.text.casefold())
    for key, value in filters.tags:
        checks = checks.adding(_HAS_TAG, tenant, key, value)
    return checks
