"""The form of values in SQLite: times as whole microseconds, structs as JSON or MessagePack."""

from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from punctual.domain.identifiers import EPOCH

T = TypeVar("T")
_MINUTE = timedelta(minutes=1)


class Codec(Generic[T]):
    """JSON encoder and decoder of one type. Both are created once."""

    __slots__ = ("decode", "encode")

    def __init__(self, kind: type[T]) -> None:
        self.encode = msgspec.json.Encoder().encode
        self.decode = msgspec.json.Decoder(kind).decode


class Packed(Generic[T]):
    """MessagePack encoder and decoder of one type.

    The result has two thirds of the length of JSON.

    Only for types without values of a client's own.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, kind: type[T]) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(kind).decode


def micros(at: datetime) -> int:
    """
    >>> micros(datetime(1970, 1, 1, 0, 0, 1, 500_001, tzinfo=EPOCH.tzinfo))
    1500001
    """
    since = at - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment(at: int) -> datetime:
    """
    >>> moment(1500001)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500001, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + timedelta(microseconds=at)


def minute(bucket: datetime) -> int:
    """
    >>> minute(EPOCH + 3 * _MINUTE)
    3
    """
    return (bucket - EPOCH) // _MINUTE


def of_minute(number: int) -> datetime:
    """
    >>> of_minute(minute(EPOCH + 3 * _MINUTE)) == EPOCH + 3 * _MINUTE
    True
    """
    return EPOCH + number * _MINUTE
