"""Reads rows of SQLite also if a text is not UTF-8."""

import sqlite3
from typing import Any

_UTF_8_ERROR = "Could not decode to UTF-8"


def read_rows(
    db: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return all rows, with a damaged text as bytes.

    By default the module `sqlite3` fails on it.
    """
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith(_UTF_8_ERROR):
            raise
    previous_factory, db.text_factory = db.text_factory, _decode_text
    try:
        return db.execute(statement, values).fetchall()
    finally:
        db.text_factory = previous_factory


def _decode_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
