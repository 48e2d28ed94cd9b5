"""The form of values in SQLite: times as whole microseconds, structs as JSON or MessagePack."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from punctual.domain.utc import EPOCH

T = TypeVar("T")
_MINUTE = timedelta(minutes=1)


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
