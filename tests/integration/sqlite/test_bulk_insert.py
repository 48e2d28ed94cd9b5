"""Rows inserted by one statement for many are stored as by one statement each."""

import sqlite3

import pytest

from punctual.node.sqlite.rows import ROWS_PER_STATEMENT, insert_rows

INSERT = "INSERT OR IGNORE INTO t (a, b) VALUES (?, ?)"


@pytest.mark.parametrize(
    "count",
    [
        0,
        1,
        ROWS_PER_STATEMENT - 1,
        ROWS_PER_STATEMENT,
        ROWS_PER_STATEMENT + 1,
        3 * ROWS_PER_STATEMENT - 1,
    ],
)
def test_bulk_insert_keeps_order_and_does_not_count_ignored_rows(count: int) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (a INTEGER UNIQUE, b TEXT)")
    rows = [(n, f"{n}") for n in range(count)]
    assert insert_rows(db, INSERT, rows) == count
    assert db.execute("SELECT a, b FROM t ORDER BY rowid").fetchall() == rows
    more_rows = [(n, "another") for n in range(count + 60)]
    assert insert_rows(db, INSERT, more_rows) == 60
    assert db.execute("SELECT count(*) FROM t WHERE b = 'another'").fetchone() == (60,)
    db.close()


def test_refused_row_rolls_back_its_statement() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (a INTEGER UNIQUE, b TEXT)")
    rows = [(n % (ROWS_PER_STATEMENT - 1), "") for n in range(ROWS_PER_STATEMENT)]
    with pytest.raises(sqlite3.IntegrityError):
        insert_rows(db, "INSERT INTO t (a, b) VALUES (?, ?)", rows)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
    db.close()
