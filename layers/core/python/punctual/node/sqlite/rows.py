"""Rows of SQLite: the form of their values, reading them, and inserting many at once.

Times are whole microseconds, and structs are JSON or MessagePack.
"""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from typing import Any, Generic, TypeVar

import msgspec

from punctual.domain.utc import EPOCH

T = TypeVar("T")
_MINUTE = timedelta(minutes=1)
_UTF_8_ERROR = "Could not decode to UTF-8"
ROWS_PER_STATEMENT = 50


class Codec(Generic[T]):
    """The encoder and the decoder of one type, both created once.

    With `packed` the form is MessagePack, with two thirds of the length of JSON. It is only for
    types without values of a client's own.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, value_type: type[T], packed: bool = False) -> None:
        self.encode: Callable[[Any], bytes]
        self.decode: Callable[[Any], T]
        if packed:
            self.encode = msgspec.msgpack.Encoder().encode
            self.decode = msgspec.msgpack.Decoder(value_type).decode
        else:
            self.encode = msgspec.json.Encoder().encode
            self.decode = msgspec.json.Decoder(value_type).decode


def to_micros(time: datetime) -> int:
    """Return the whole microseconds since 1970.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, 500_001, tzinfo=EPOCH.tzinfo))
    1500001
    """
    elapsed = time - EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def from_micros(micros: int) -> datetime:
    """Return the time of `to_micros`.

    >>> from_micros(1500001)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500001, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + timedelta(microseconds=micros)


def to_minute(bucket: datetime) -> int:
    """Return the number of the minute since 1970.

    >>> to_minute(EPOCH + 3 * _MINUTE)
    3
    """
    return (bucket - EPOCH) // _MINUTE


def from_minute(minute: int) -> datetime:
    """Return the start of a minute.

    >>> from_minute(to_minute(EPOCH + 3 * _MINUTE)) == EPOCH + 3 * _MINUTE
    True
    """
    return EPOCH + minute * _MINUTE


def read_rows(
    db: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return all rows, with a text that is not UTF-8 as bytes.

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


def insert_rows(db: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `INSERT … VALUES (?, …)` for all rows, with few statements.

    Running a statement costs as much as the row that it writes.
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
