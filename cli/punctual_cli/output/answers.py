"""Write answers to standard output, as JSON for programs or drawn for people."""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from punctual_cli.session import Session


def as_json(value: Any) -> None:
    """Write one JSON document."""
    _write(msgspec.json.format(msgspec.json.encode(value), indent=2))


def as_line(value: Any) -> None:
    """Write one document of a stream, and flush it at once."""
    _write(msgspec.json.encode(value))


# JSON may hold U+007F to U+009F as they are, but a terminal obeys some of them.
_OBEYED = re.compile(b"\x7f|\xc2[\x80-\x9f]")


def _write(data: bytes) -> None:
    """Write bytes in UTF-8, as JSON requires, for any encoding of the terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(_OBEYED.sub(_escaped, data) + b"\n")
    sys.stdout.buffer.flush()


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found.group().decode())


def one(session: Session, found: Any, draw: Callable[[Any], None]) -> None:
    if session.as_json:
        as_json(found.raw)
    else:
        draw(found)


def many(session: Session, found: Iterable[Any], draw: Callable[[list[Any]], None]) -> None:
    """Write all items, as an array or drawn, in the order in which they came."""
    everything = list(found)
    if session.as_json:
        as_json([one.raw for one in everything])
    else:
        draw(everything)


def ids(session: Session, found: list[str]) -> None:
    if session.as_json:
        as_json(found)
    else:
        sys.stdout.writelines(f"{one}\n" for one in found)
