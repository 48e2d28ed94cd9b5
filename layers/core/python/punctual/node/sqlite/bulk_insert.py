"""Inserts many rows with few statements.

Running a statement costs as much as the row that it writes.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

TOGETHER = 50


def insert(db: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `INSERT … VALUES (?, …)` for all rows.

    Return how many rows were written and not ignored.
    """
    whole = len(rows) - len(rows) % TOGETHER
    written = 0
    if whole:
        together = [
            tuple(chain.from_iterable(rows[at : at + TOGETHER])) for at in range(0, whole, TOGETHER)
        ]
        written += db.executemany(_of_many(statement), together).rowcount
    if whole < len(rows):
        written += db.executemany(statement, rows[whole:]).rowcount
    return written


@cache
def _of_many(statement: str) -> str:
    """
    >>> _of_many("INSERT INTO t (a, b) VALUES (?, ?)").count("(?, ?)")
    50
    """
    into, values, row = statement.partition(" VALUES ")
    return into + values + ", ".join([row] * TOGETHER)
