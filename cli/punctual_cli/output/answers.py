"""Write answers to standard output, as JSON for programs or drawn for people."""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from punctual_cli.session import Session


def write_json(value: Any) -> None:
    """Write one JSON document."""
    _write(msgspec.json.format(msgspec.json.encode(value), indent=2))


def write_json_line(value: Any) -> None:
    """Write one document of a stream, and flush it at once."""
    _write(msgspec.json.encode(value))


# JSON may hold U+007F to U+009F as they are, but a terminal obeys some of them.
_TERMINAL_CONTROLS = re.compile(b"\x7f|\xc2[\x80-\x9f]")


def _write(data: bytes) -> None:
    """Write bytes in UTF-8, as JSON requires, for any encoding of the terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(_TERMINAL_CONTROLS.sub(_escape_match, data) + b"\n")
    sys.stdout.buffer.flush()


def _escape_match(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match.group().decode())


def write_item(session: Session, item: Any, draw: Callable[[Any], None]) -> None:
    if session.as_json:
        write_json(item.raw)
    else:
        draw(item)


def write_items(session: Session, items: Iterable[Any], draw: Callable[[list[Any]], None]) -> None:
    """Write all items, as an array or drawn, in the order in which they came."""
    item_list = list(items)
    if session.as_json:
        write_json([item.raw for item in item_list])
    else:
        draw(item_list)


def write_ids(session: Session, item_ids: list[str]) -> None:
    if session.as_json:
        write_json(item_ids)
    else:
        sys.stdout.writelines(f"{item_id}\n" for item_id in item_ids)
