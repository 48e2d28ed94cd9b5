"""Request bodies: strict JSON, and a cheap look for what only a slow one would find."""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from punctual.domain.errors import FieldError, Invalid
from punctual.web.http.problems import RequestRejected

MAX_BODY_BYTES = 512 * 1024
MAX_BATCH_BODY_BYTES = 5 * 1024 * 1024
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_REPORTED_PATHS = 100
MAX_DIGITS = 4_300
CONTAINERS = (dict, list)
_SHOWN_PATH = 256
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f]")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode
_HALF = "a string holds half of a surrogate pair, such as \\ud83d without the other"
_NUL = "must not hold the character U+0000"
_DEEP = f"must not be nested deeper than {MAX_DEPTH} levels"


def parse_json(body: bytes) -> Any:
    """The value of a JSON text; of a name that comes twice the last counts."""
    if not body.strip():
        raise RequestRejected("BAD_REQUEST", "The body is empty: send a JSON object.")
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise _number_problem(body) from error
    except RecursionError as error:
        raise RequestRejected("BAD_REQUEST", "The body is nested too deep.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        reason = _HALF if _holds_half_a_pair(body) else _reason(error)
        raise RequestRejected("BAD_REQUEST", f"The body is not JSON: {reason}.") from error


class JsonBody(NamedTuple):
    """A JSON object, and whether it may hold what only a walk through it would find."""

    value: dict[str, Any]
    size: int
    may_be_too_deep: bool
    may_contain_nul: bool
    max_payload_bytes: int = MAX_PAYLOAD_BYTES  # bytes; a tenant may be allowed less


def parse_object(body: bytes, payload_most: int | None = None) -> JsonBody:
    value = parse_json(body)
    if not isinstance(value, dict):
        raise RequestRejected("BAD_REQUEST", "The body is not a JSON object.")
    # As JSON, U+0000 can only stand in a string escaped.
    most = MAX_PAYLOAD_BYTES if payload_most is None else min(payload_most, MAX_PAYLOAD_BYTES)
    return JsonBody(value, len(body), _brackets(body) > MAX_DEPTH, b"\\u0000" in body, most)


def parse_optional(body: bytes, payload_most: int | None = None) -> JsonBody:
    """Where a body may be left out."""
    return parse_object(body, payload_most) if body.strip() else JsonBody({}, 0, False, False)


def value_errors(fields: Mapping[str, Any], parsed: JsonBody) -> list[FieldError]:
    """Values that are nested too deep, and strings that hold what no store and no shell takes."""
    errors = []
    shallow = fields
    if parsed.may_be_too_deep:
        deep = [
            name
            for name, value in fields.items()
            if isinstance(value, CONTAINERS) and _is_deeper(value, MAX_DEPTH)
        ]
        if deep:
            errors = [FieldError(_clean(name), _DEEP) for name in deep]
            shallow = {name: value for name, value in fields.items() if name not in deep}
    if parsed.may_contain_nul:
        paths = islice(_nul_paths("", shallow), MAX_REPORTED_PATHS)
        errors += [FieldError(path, _NUL) for path in paths]
    return errors


def is_payload_too_long(payload: Any, parsed: JsonBody) -> bool:
    """A payload of a small body is not measured."""
    return (
        parsed.size > parsed.max_payload_bytes and len(_encode(payload)) > parsed.max_payload_bytes
    )


def fingerprint(operation: str, value: Any) -> str:
    """The same for the same request, however its JSON was written."""
    digest = blake2b(operation.encode(), digest_size=16)
    digest.update(b"\0" + _canonical(value))
    return digest.hexdigest()


def _number_problem(body: bytes) -> Invalid:
    """Numbers that no double can hold, by their paths as far as a second parser finds them."""
    text = f"must be a number from -1.8e308 to 1.8e308 of at most {MAX_DIGITS:,} digits"
    try:
        value = json.loads(body, parse_int=_bounded)
    except (ValueError, RecursionError):
        return Invalid.of(FieldError("body", f"holds a number that is out of range: each {text}"))
    paths = list(islice(_infinite_paths("", value), MAX_REPORTED_PATHS)) or ["body"]
    return Invalid.of(*(FieldError(path, text) for path in paths))


def _bounded(digits: str) -> float:
    """More digits than Python reads at once are as many as infinitely many."""
    return int(digits) if len(digits) <= MAX_DIGITS else float("inf")


def _holds_half_a_pair(body: bytes) -> bool:
    """Of two escapes that are one character only together: the other parser calls it cut off."""
    if b"\\u" not in body:
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _infinite_paths(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            yield path[:_SHOWN_PATH] or "body"
    else:
        for name, inner in _inside(value):
            yield from _infinite_paths(f"{path}.{name}" if path else name, inner)


def _nul_paths(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "\0" in value:
            yield _clean(path)
        return
    for name, inner in _inside(value):
        here = f"{path}.{name}" if path else name
        if "\0" in name:
            yield _clean(here)
        yield from _nul_paths(here, inner)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield str(index), inner


def _clean(path: str) -> str:
    return path.replace("\0", "\\u0000")[:_SHOWN_PATH]


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    """By layers: nothing here recurses, so no depth can hurt."""
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for one in layer
            for inner in (one.values() if type(one) is dict else one)
            if type(inner) is dict or type(inner) is list
        ]
        if not layer:
            return False
    return bool(layer)


def _brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    return str(error).removeprefix("JSON is malformed: ").rstrip(".").lower()[:200]
