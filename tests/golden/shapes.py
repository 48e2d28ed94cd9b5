"""What rows, objects and messages look like, whatever stands in them: how a former version reads.

A shape is a set of lines, each a kind of row, an attribute of it and what stands there. So what
one account has and another has not is a difference of sets, and every line of it can be read.
"""

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from punctual.aws.dynamodb.keys import PK, SK

_PARTS = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "id"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)", "moment"),
    (r"\d{12}", "number"),
    (r"\d{1,11}", "digits"),
    (r"[0-9a-f]{8}-[0-9a-f]", "group"),
    (r"\d+-[0-9a-f]{12}", "ref"),
    (r"[0-9a-f]{16}", "digest"),
    (r"[0-9a-f]{12}", "mark"),
)
# Attributes that are named by what they hold.
_NAMED = ((r"lease_.+", "lease_"), (r"(b|late_)\d+", r"\1n"), (r"(run|job)_[A-Z_]+", r"\1_STATE"))
_DYNAMIC = ("rules",)  # whose keys are numbers of definitions
_FREE = ("document", "payload", "after", "before", "headers")  # what people sent


def shape(account: Mapping[str, Any]) -> set[str]:
    """Of all that is in store, and under way; the stream shows rows of heads once more."""
    lines: set[str] = set()
    for table, rows in account["tables"].items():
        for row in rows:
            lines |= {f"{table} {line}" for line in _of_row(row)}
    lines |= {f"object {grammar(name, '/')}" for name in account["blobs"]}
    for name, bodies in account["queues"].items():
        for body in bodies:
            lines |= {f"message {name}{line}" for line in _inside("", json.loads(body))}
    return lines


def _of_row(row: Mapping[str, Any]) -> Iterator[str]:
    kind = f"{grammar(row[PK]['S'])} | {grammar(row[SK]['S'])}"
    yield kind
    for name, attribute in row.items():
        if name not in (PK, SK):
            for line in _of_attribute(_named(name), attribute):
                yield f"{kind}: {line}"


def grammar(text: str, separator: str = "#") -> str:
    """
    >>> grammar("acme#019cae6b-6600-7000-8000-0000000001c0#000000000003")
    'acme#id#number'
    """
    return separator.join(_part(part) for part in text.split(separator))


def _part(text: str) -> str:
    return next((word for pattern, word in _PARTS if re.fullmatch(pattern, text)), text)


def _named(name: str) -> str:
    """
    >>> _named("late_500"), _named("run_SUCCESS"), _named("ended")
    ('late_n', 'run_STATE', 'ended')
    """
    return next(
        (re.sub(pattern, word, name) for pattern, word in _NAMED if re.fullmatch(pattern, name)),
        name,
    )


def _of_attribute(path: str, attribute: Mapping[str, Any]) -> Iterator[str]:
    ((kind, value),) = attribute.items()
    match kind:
        case "M":
            for name, one in value.items():
                yield from _of_attribute(f"{path}.{'*' if path in _DYNAMIC else name}", one)
        case "L":
            for one in value:
                yield from _of_attribute(f"{path}[]", one)
        case "SS":
            yield from (f"{path} SS {grammar(one)}" for one in value)
        case "B":
            yield from _inside(f"{path} B", _opened(b64decode(value)))
        case "S":
            with suppress(ValueError):
                yield from _inside(f"{path} S", _structured(value))
                return
            yield f"{path} S {_kind_of(value)}"
        case _:
            yield f"{path} {kind}"


def _opened(data: bytes) -> Any:
    try:
        packed = zlib.decompress(data)
    except zlib.error:
        return data
    try:
        return json.loads(packed)
    except ValueError:
        return msgspec.msgpack.decode(packed)


def _structured(text: str) -> Any:
    value = json.loads(text)
    if not isinstance(value, dict | list):
        raise ValueError(text)
    return value


def _inside(path: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, one in value.items():
                here = "*" if path.endswith(_DYNAMIC) else name
                if name in _FREE:
                    yield f"{path}.{here}"
                else:
                    yield from _inside(f"{path}.{here}", one)
        case list() | tuple():
            for one in value:
                yield from _inside(f"{path}[]", one)
        case str():
            yield f"{path} {_kind_of(value)}"
        case _:
            yield f"{path} {type(value).__name__}"


def _kind_of(text: str) -> str:
    found = _part(text)
    return found if found in ("id", "moment") else "text"
