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

    def __init__(self, value_type: type[T]) -> None:
        self.encode = msgspec.json.Encoder().encode
        self.decode = msgspec.json.Decoder(value_type).decode


class PackedCodec(Generic[T]):
    """MessagePack encoder and decoder of one type.

    The result has two thirds of the length of JSON.

    Only for types without values of a client's own.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, value_type: type[T]) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(value_type).decode


def to_micros(time: datetime) -> int:
    """
    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, 500_001, tzinfo=EPOCH.tzinfo))
    1500001
    """
    elapsed = time - EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def from_micros(micros: int) -> datetime:
    """
    >>> from_micros(1500001)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500001, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + timedelta(microseconds=micros)


def to_minute(bucket: datetime) -> int:
    """
    >>> to_minute(EPOCH + 3 * _MINUTE)
    3
    """
    return (bucket - EPOCH) // _MINUTE


def from_minute(minute: int) -> datetime:
    """
    >>> from_minute(to_minute(EPOCH + 3 * _MINUTE)) == EPOCH + 3 * _MINUTE
    True
    """
    return EPOCH + minute * _MINUTE
