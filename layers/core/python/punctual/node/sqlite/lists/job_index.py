"""Reads the list of jobs: a bounded number of short rows, in the order of the list."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from punctual.engine.ports.lists.job_index import (
    MAX_JOB_NAME_CHARACTERS,
    JobFilters,
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
from punctual.node.sqlite.transaction import Transaction

# Rows that one call reads at most. A row that needs a search in another table costs ten times one
# that is read in order.
MAX_ROWS_IN_ORDER = 10_000
MAX_ROWS_SEARCHED = 2_500
_BEFORE_TIMELESS_JOBS: Position = (WITHOUT_NEXT_TIME, "")
_ID = "job_id"
_LAST_CHARACTER = "\U0010ffff"
_HAS_NO_NEXT_TIME = (
    "EXISTS (SELECT 1 FROM heads WHERE heads.tenant = listed.tenant "
    "AND heads.job_id = listed.job_id AND coming IS NULL)"
)
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


class SqliteJobIndex:
    """The job list of the node. It is never behind the job states."""

    def __init__(self, transaction: Transaction, flush: Callable[[], None]) -> None:
        self._transaction = transaction
        self._flush = flush

    def page(
        self,
        tenant: str,
        query: JobQuery,
        limit: int,
        after: Position | None,
        now: datetime,  # noqa: ARG002
    ) -> JobIndexPage:
        with self._transaction:
            self._flush()
            if query.sort is JobSort.CREATED:
                rows = _by_creation(tenant, query.filters, after)
            elif query.sort is JobSort.NAME:
                rows = _by_name(tenant, query.filters, after)
            elif after is not None and after[0] == WITHOUT_NEXT_TIME:
                rows = _without_next_time(tenant, after[1])
            else:
                return self._page_by_next_time(tenant, query.filters, limit, after)
            positions, end = self._read(tenant, rows, query.filters, limit + 1)
            return _cut(positions, limit, end)

    def _page_by_next_time(
        self, tenant: str, filters: JobFilters, limit: int, after: Position | None
    ) -> JobIndexPage:
        """Return jobs with a next time. The jobs without one begin with a page of their own.

        The index of times has two parts. Up to the place where both are read, they are merged.
        """
        found: list[Position] = []
        ends: list[Position] = [_BEFORE_TIMELESS_JOBS]
        for repeats in (0, 1):
            rows = _by_next_time(tenant, repeats, after)
            positions, end = self._read(tenant, rows, filters, limit + 1)
            found += positions
            ends += [] if end is None else [end]
        complete_until = min(ends)
        merged = sort_positions(JobSort.NEXT_RUN, found)
        complete = [position for position in merged if position <= complete_until]
        return _cut(complete, limit, complete_until)

    def _read(
        self, tenant: str, rows: _Rows, filters: JobFilters, limit: int
    ) -> tuple[list[Position], Position | None]:
        """Return up to `limit` positions, and the last one that was read if more may follow."""
        db = self._transaction.db
        columns = ", ".join(rows.position)
        found = db.execute(*_statement(tenant, rows, filters, limit)).fetchall()
        positions = [rows.to_position(row) for row in found]
        if len(positions) == limit:
            return positions, positions[-1]
        last = db.execute(
            f"SELECT {columns} {rows.source} ORDER BY {rows.order} LIMIT 1 OFFSET ?",
            (*rows.values, rows.max_rows - 1),
        ).fetchone()
        return positions, None if last is None else rows.to_position(last)


def _cut(positions: list[Position], limit: int, end: Position | None) -> JobIndexPage:
    if len(positions) > limit:
        return JobIndexPage(positions[:limit], positions[limit - 1])
    return JobIndexPage(positions, end)


def _statement(tenant: str, rows: _Rows, filters: JobFilters, limit: int) -> tuple[str, _Values]:
    """Return the SELECT for the rows that pass the filters, and its values.

    A row without a name lacks its definition. It passes all filters, so that its reader reports it.
    """
    alias = "listed" if rows.is_job_list else "job_list"
    conditions, values = _conditions(tenant, filters, alias)
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
    return statement, (*rows.values, rows.max_rows, *join_values, *values, limit)


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


def _conditions(tenant: str, filters: JobFilters, alias: str) -> tuple[list[str], _Values]:
    """Return the conditions for the columns of the list row, and their values."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *condition_values: Any) -> None:
        conditions.append(condition)
        values.extend(condition_values)

    if filters.status:
        places = ", ".join("?" * len(filters.status))
        add(f"{alias}.status IN ({places})", *sorted(filters.status))
    for column in ("kind", "name", "created_by"):
        wanted = {
            "kind": filters.schedule_type,
            "name": filters.name,
            "created_by": filters.created_by,
        }[column]
        if wanted:
            add(f"{alias}.{column} = ?", wanted)
    if filters.name_prefix:
        add(f"substr({alias}.name, 1, ?) = ?", len(filters.name_prefix), filters.name_prefix)
    if filters.text:
        add(f"instr({alias}.search, ?) > 0", filters.text.casefold())
    for key, value in filters.tags:
        add(
            "EXISTS (SELECT 1 FROM job_tags WHERE tenant = ? AND key = ? AND value = ? "
            f"AND job_tags.job_id = {alias}.job_id)",
            *(tenant, key, value),
        )
    return conditions, tuple(values)
