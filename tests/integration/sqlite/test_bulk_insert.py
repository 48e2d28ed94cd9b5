"""Rows that go fifty a statement are written as if each had its own."""

import sqlite3

import pytest

from punctual.node.sqlite.bulk_insert import ROWS_PER_STATEMENT, insert_rows

INSERT = "INSERT OR IGNORE INTO t (a, b) VALUES (?, ?)"


@pytest.mark.parametrize(
    "many",
    [
        0,
        1,
        ROWS_PER_STATEMENT - 1,
        ROWS_PER_STATEMENT,
        ROWS_PER_STATEMENT + 1,
        3 * ROWS_PER_STATEMENT - 1,
    ],
)
def test_all_are_written_in_their_order_and_what_is_ignored_does_not_count(many: int) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (a INTEGER UNIQUE, b TEXT)")
    rows = [(n, f"{n}") for n in range(many)]
    assert insert_rows(db, INSERT, rows) == many
    assert db.execute("SELECT a, b FROM t ORDER BY rowid").fetchall() == rows
    more = [(n, "another") for n in range(many + 60)]
    assert insert_rows(db, INSERT, more) == 60
    assert db.execute("SELECT count(*) FROM t WHERE b = 'another'").fetchone() == (60,)
    db.close()


def test_one_that_is_refused_undoes_its_statement() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (a INTEGER UNIQUE, b TEXT)")
    rows = [(n % (ROWS_PER_STATEMENT - 1), "") for n in range(ROWS_PER_STATEMENT)]
    with pytest.raises(sqlite3.IntegrityError):
        insert_rows(db, "INSERT INTO t (a, b) VALUES (?, ?)", rows)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
    db.close()
