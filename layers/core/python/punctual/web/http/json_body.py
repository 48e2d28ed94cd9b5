"""Parse request bodies as strict JSON, and skip slow checks that a cheap look rules out."""

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
MAX_NUMBER_DIGITS = 4_300
CONTAINER_TYPES = (dict, list)
JSON_WHITESPACE = b" \t\n\r"
_MAX_PATH_CHARACTERS = 256
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f]")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
encode_canonical = msgspec.json.Encoder(order="deterministic").encode
_SURROGATE_MESSAGE = "a string holds half of a surrogate pair, such as \\ud83d without the other"
_NUL_MESSAGE = "must not hold the character U+0000"
_DEPTH_MESSAGE = f"must not be nested deeper than {MAX_DEPTH} levels"


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text. The last of several equal names counts."""
    if not body.strip(JSON_WHITESPACE):
        raise RequestRejected("BAD_REQUEST", "The body is empty: send a JSON object.")
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise _number_problem(body) from error
    except RecursionError as error:
        raise RequestRejected(
            "BAD_REQUEST", f"The body is nested deeper than {MAX_DEPTH} levels."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        reason = _SURROGATE_MESSAGE if _has_lone_surrogate(body) else _reason(error)
        raise RequestRejected("BAD_REQUEST", f"The body is not JSON: {reason}.") from error


class JsonBody(NamedTuple):
    """A JSON object, and whether the slow checks of its values are needed."""

    value: dict[str, Any]
    size: int
    may_be_too_deep: bool
    may_contain_nul: bool
    max_payload_bytes: int = MAX_PAYLOAD_BYTES  # a tenant may have a lower limit


def parse_object(body: bytes, max_payload_bytes: int | None = None) -> JsonBody:
    value = parse_json(body)
    if not isinstance(value, dict):
        raise RequestRejected("BAD_REQUEST", "The body is not a JSON object.")
    limit = MAX_PAYLOAD_BYTES
    if max_payload_bytes is not None:
        limit = min(max_payload_bytes, limit)
    brackets = body.count(b"[") + body.count(b"{")
    # A JSON string can hold U+0000 only as an escape.
    return JsonBody(value, len(body), brackets > MAX_DEPTH, b"\\u0000" in body, limit)


def parse_optional(body: bytes, max_payload_bytes: int | None = None) -> JsonBody:
    """Return the object of a body, or an empty object if there is no body."""
    return (
        parse_object(body, max_payload_bytes)
        if body.strip(JSON_WHITESPACE)
        else JsonBody({}, 0, False, False)
    )


def value_errors(fields: Mapping[str, Any], body: JsonBody) -> list[FieldError]:
    """Return an error for each value that is nested too deep or holds U+0000."""
    errors = []
    shallow = fields
    if body.may_be_too_deep:
        deep_names = [
            name
            for name, value in fields.items()
            if isinstance(value, CONTAINER_TYPES) and _is_deeper(value, MAX_DEPTH)
        ]
        if deep_names:
            errors = [FieldError(_printable(name), _DEPTH_MESSAGE) for name in deep_names]
            shallow = {name: value for name, value in fields.items() if name not in deep_names}
    if body.may_contain_nul:
        paths = islice(_nul_paths("", shallow), MAX_REPORTED_PATHS)
        errors += [FieldError(path, _NUL_MESSAGE) for path in paths]
    return errors


def is_payload_too_long(payload: Any, body: JsonBody) -> bool:
    """Return True if the payload exceeds its limit. A small body needs no measuring."""
    return body.size > body.max_payload_bytes and len(_encode(payload)) > body.max_payload_bytes


def fingerprint(operation: str, value: Any) -> str:
    """Return a digest that is equal for equal JSON values, whatever their spelling."""
    digest = blake2b(operation.encode(), digest_size=16)
    digest.update(b"\0" + encode_canonical(value))
    return digest.hexdigest()


def _number_problem(body: bytes) -> Invalid:
    """Return the error for numbers outside the range of a double, with their paths.

    A second parser finds the paths.
    """
    text = f"must be a number from -1.8e308 to 1.8e308 of at most {MAX_NUMBER_DIGITS:,} digits"
    try:
        value = json.loads(body, parse_int=_int_or_infinity)
    except (ValueError, RecursionError):
        return Invalid.of(FieldError("body", f"holds a number out of range: each {text}"))
    paths = list(islice(_infinite_paths("", value), MAX_REPORTED_PATHS)) or ["body"]
    return Invalid.of(*(FieldError(path, text) for path in paths))


def _int_or_infinity(digits: str) -> float:
    """Return infinity for more digits than Python converts."""
    return int(digits) if len(digits) <= MAX_NUMBER_DIGITS else float("inf")


def _has_lone_surrogate(body: bytes) -> bool:
    """Return True if the body holds half of a surrogate pair. msgspec says only "truncated"."""
    if b"\\u" not in body:
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _infinite_paths(prefix: str, value: Any) -> Iterator[str]:
    """Return the paths of infinite numbers; `prefix` is empty or ends with a dot."""
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            yield prefix[:-1][:_MAX_PATH_CHARACTERS] or "body"
    else:
        for name, inner in _children(value):
            yield from _infinite_paths(f"{prefix}{name}.", inner)


def _nul_paths(prefix: str, value: Any) -> Iterator[str]:
    """Return the paths of values and names with U+0000; `prefix` is empty or ends with a dot."""
    if isinstance(value, str):
        if "\0" in value:
            yield _printable(prefix[:-1])
        return
    for name, inner in _children(value):
        if "\0" in name:
            yield _printable(f"{prefix}{name}")
        yield from _nul_paths(f"{prefix}{name}.", inner)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield str(index), inner


def _printable(path: str) -> str:
    return path.replace("\0", "\\u0000")[:_MAX_PATH_CHARACTERS]


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    """Return True if the value has more levels. The walk does not recurse, so no depth can hurt."""
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not layer:
            return False
    return bool(layer)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    return str(error).removeprefix("JSON is malformed: ").rstrip(".").lower()[:200]
