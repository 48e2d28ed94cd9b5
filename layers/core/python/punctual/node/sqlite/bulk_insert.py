"""Inserts many rows with few statements.

Running a statement costs as much as the row that it writes.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

ROWS_PER_STATEMENT = 50


def insert_rows(db: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `INSERT … VALUES (?, …)` for all rows.

    Return how many rows were written and not ignored.
    """
    batched_rows = len(rows) - len(rows) % ROWS_PER_STATEMENT
    written = 0
    if batched_rows:
        batches = [
            tuple(chain.from_iterable(rows[start : start + ROWS_PER_STATEMENT]))
            for start in range(0, batched_rows, ROWS_PER_STATEMENT)
        ]
        written += db.executemany(_multi_row_statement(statement), batches).rowcount
    if batched_rows < len(rows):
        written += db.executemany(statement, rows[batched_rows:]).rowcount
    return written


@cache
def _multi_row_statement(statement: str) -> str:
    """Return the statement for `ROWS_PER_STATEMENT` rows.

    >>> _multi_row_statement("INSERT INTO t (a, b) VALUES (?, ?)").count("(?, ?)")
    50
    """
    target, keyword, row_placeholders = statement.partition(" VALUES ")
    return target + keyword + ", ".join([row_placeholders] * ROWS_PER_STATEMENT)
