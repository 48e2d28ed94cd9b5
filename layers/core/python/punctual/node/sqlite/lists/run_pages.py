"""Finds the history rows of all jobs that the columns of a row let pass, newest first.

A page reads a bounded number of rows. What it reads in order comes from one of these:

- the runs of each job with a name or a tag, merged, if these jobs are few;
- the runs of each reason, or of each status but SUCCESS, merged: most runs succeed;
- all runs.
"""

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.run import ENDED_RUN_STATUSES, RunStatus
from punctual.domain.utc import MICROSECOND
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.node.sqlite.rows import to_micros

RUN_ID_TIME = "substr(run_id, 1, 13)"  # the 48 bits of time in an id
# Rows that one page reads. A row costs more if its job is looked up.
MAX_RUN_ROWS_READ = 12_000
MAX_LABELLED_ROWS_READ = 5_000
MAX_JOBS_READ_ALONE = 200  # by the index of a job, and merged
_POSITION_COLUMNS = "run_id, job_id, id"
_BY_MOMENT = f"ORDER BY {RUN_ID_TIME} DESC, run_id DESC, job_id DESC"

Position = tuple[str, str]  # run id, job id


class FoundRows(NamedTuple):
    """The numbers of rows, and the position after which the next page reads; None at the end."""

    row_ids: Sequence[int]
    before: Position | None


class _Source(NamedTuple):
    """Rows in the order of the list, as a SELECT without its bound."""

    statement: str
    values: tuple[Any, ...]


def find_rows(
    db: sqlite3.Connection,
    tenant: str,
    filters: RunFilters,
    before: Position | None,
    limit: int,
    now: datetime,
) -> FoundRows:
    """Return up to `limit` rows. Rows that fail a filter are left out if their columns tell."""
    condition, values = _column_conditions(filters)
    sources = [
        _Source(
            f"SELECT {_POSITION_COLUMNS}, {condition} {source.statement}", (*values, *source.values)
        )
        for source in _sources(db, tenant, filters, before, to_micros(now))
    ]
    max_rows = MAX_LABELLED_ROWS_READ if filters.is_by_job else MAX_RUN_ROWS_READ
    with ExitStack() as stack:
        cursors = [stack.enter_context(closing(db.execute(*source))) for source in sources]
        merged: Iterator[Any] = heapq.merge(*cursors, key=itemgetter(0, 1), reverse=True)
        row_ids: list[int] = []
        last: Position | None = None
        read = 0
        for run_id, job_id, row_id, passes in islice(merged, max_rows):
            read += 1
            last = run_id, job_id
            if passes:
                row_ids.append(row_id)
                if len(row_ids) == limit:
                    return FoundRows(row_ids, last)
    return FoundRows(row_ids, last if read == max_rows else None)


def _column_conditions(filters: RunFilters) -> tuple[str, tuple[Any, ...]]:
    """Return an expression that is false for a row that cannot pass, and its values."""
    conditions, values = ["1"], list[Any]()
    for column, allowed in (("status", filters.status), ("reason", filters.reasons)):
        if allowed:
            conditions.append(f"{column} IN ({', '.join('?' * len(allowed))})")
            values += sorted(allowed)
    if filters.trigger:
        conditions.append("coalesce(cause, 'SCHEDULE') = ?")
        values.append(filters.trigger)
    for operator, duration in ((">=", filters.min_duration), ("<=", filters.max_duration)):
        if duration is not None:
            conditions.append(f"duration {operator} ?")
            values.append(duration // MICROSECOND)
    for operator, at in _end_bounds(filters):
        conditions.append(f"expires {operator} ?")
        values.append(to_micros(at + HISTORY_RETENTION))
    expression = " AND ".join(conditions)
    for condition, value in _label_conditions(filters):
        # Unlike AND, this looks for the job only of a row that passed so far.
        expression = f"CASE WHEN {expression} THEN {condition} ELSE 0 END"
        values += value
    return expression, tuple(values)


def _end_bounds(filters: RunFilters) -> Iterator[tuple[str, datetime]]:
    """Yield bounds of the end of the run. A row expires a fixed time after it.

    A run does not end before it starts.
    """
    if filters.time_field is TimeField.SCHEDULED:
        return
    if filters.start is not None:
        yield ">=", filters.start
    if filters.end is not None and filters.time_field is TimeField.ENDED:
        yield "<", filters.end


def _label_conditions(filters: RunFilters) -> Iterator[tuple[str, tuple[str, ...]]]:
    job = "tenant = runs.tenant AND job_id = runs.job_id"
    if filters.job_name:
        yield f"EXISTS (SELECT 1 FROM job_list WHERE {job} AND name = ?)", (filters.job_name,)
    for tag in filters.tags:
        yield f"EXISTS (SELECT 1 FROM job_tags WHERE {job} AND key = ? AND value = ?)", tag


def _sources(
    db: sqlite3.Connection,
    tenant: str,
    filters: RunFilters,
    before: Position | None,
    now_micros: int,
) -> list[_Source]:
    job_ids = _few_jobs(db, tenant, filters)
    if job_ids is not None:
        return [_runs_of_job(tenant, job_id, before, now_micros) for job_id in job_ids]
    bound, bound_values = "", tuple[str, ...]()
    if before is not None:
        bound = f" AND {RUN_ID_TIME} <= ? AND (run_id, job_id) < (?, ?)"
        bound_values = (before[0][:13], *before)
    index, condition, keys = _narrowest_index(filters)
    statement = (
        f"FROM runs INDEXED BY {index} WHERE tenant = ?{condition}{bound} AND expires > ? "
        f"{_BY_MOMENT}"
    )
    return [_Source(statement, (tenant, *key, *bound_values, now_micros)) for key in keys]


def _narrowest_index(filters: RunFilters) -> tuple[str, str, Sequence[tuple[str, ...]]]:
    """Return an index, the condition of one of its keys, and the keys of runs that may pass."""
    if filters.reasons:
        condition = " AND reason = ? AND reason IS NOT NULL"
        return "runs_with_reason", condition, [(reason,) for reason in sorted(filters.reasons)]
    if filters.status and RunStatus.SUCCESS not in filters.status:
        ended = sorted(filters.status & ENDED_RUN_STATUSES)
        condition = " AND status = ? AND status <> 'SUCCESS'"
        return "runs_not_succeeded", condition, [(status,) for status in ended]
    return "runs_by_moment", "", [()]


def _few_jobs(db: sqlite3.Connection, tenant: str, filters: RunFilters) -> Sequence[str] | None:
    """Return the jobs with the name, or with the rarest tag. None stands for too many jobs."""
    lookups: list[tuple[str, tuple[Any, ...]]] = []
    if filters.job_name:
        lookups.append(
            (
                "SELECT job_id FROM job_list INDEXED BY job_list_by_name "
                "WHERE tenant = ? AND name = ? LIMIT ?",
                (tenant, filters.job_name, MAX_JOBS_READ_ALONE + 1),
            )
        )
    lookups += [
        (
            "SELECT job_id FROM job_tags WHERE tenant = ? AND key = ? AND value = ? LIMIT ?",
            (tenant, *tag, MAX_JOBS_READ_ALONE + 1),
        )
        for tag in filters.tags
    ]
    job_ids_by_filter = [[job_id for (job_id,) in db.execute(*lookup)] for lookup in lookups]
    fewest = min(job_ids_by_filter, key=len, default=None)
    return None if fewest is None or len(fewest) > MAX_JOBS_READ_ALONE else fewest


def _runs_of_job(tenant: str, job_id: str, before: Position | None, now_micros: int) -> _Source:
    bound, bound_values = "", tuple[str, ...]()
    if before is not None:
        operator = "<=" if job_id < before[1] else "<"
        bound, bound_values = f" AND run_id {operator} ?", (before[0],)
    statement = (
        f"FROM runs INDEXED BY runs_of_job WHERE tenant = ? AND job_id = ?{bound} "
        "AND expires > ? ORDER BY run_id DESC"
    )
    return _Source(statement, (tenant, job_id, *bound_values, now_micros))
