"""Reads rows of SQLite also if a text is not UTF-8."""

import sqlite3
from typing import Any

_NOT_UTF_8 = "Could not decode to UTF-8"


def read_rows(
    db: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return all rows, with a damaged text as bytes.

    By default the module `sqlite3` fails on it.
    """
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith(_NOT_UTF_8):
            raise
    former, db.text_factory = db.text_factory, _text
    try:
        return db.execute(statement, values).fetchall()
    finally:
        db.text_factory = former


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
