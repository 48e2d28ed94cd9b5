"""Requests and their outcomes as values."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from punctual.client.errors import Misuse

_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
FILE_PIECE_BYTES = 256 * 1024
SUCCESS_STATUSES = frozenset(range(200, 300))


class Repeat(Enum):
    """The effect of a request that the server carries out twice."""

    READS = "reads"  # no change at all
    SAFE = "safe"  # no change the second time
    NEVER = "never"  # a second effect, or another answer


class RequestFile(NamedTuple):
    """A file that is the body of a request. `on_progress` gets the number of bytes sent so far."""

    path: Path
    on_progress: Callable[[int], None] | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield the content, and report each piece when the next one is asked for."""
        sent = 0
        with self.path.open("rb") as content:
            while piece := content.read(FILE_PIECE_BYTES):
                yield piece
                sent += len(piece)
                if self.on_progress is not None:
                    self.on_progress(sent)


class ResponseFile:
    """The file that gets the content of a successful answer, instead of the memory.

    A path is opened when the content begins, so a call that fails before leaves the file as it is.
    Each attempt begins the file again. A stream cannot begin again once it has content.
    """

    def __init__(self, to: "str | os.PathLike[str] | BinaryIO") -> None:
        self._path = Path(to) if isinstance(to, str | os.PathLike) else None
        self._stream = None if isinstance(to, str | os.PathLike) else to
        self.size = 0  # bytes of the present attempt

    @property
    def is_repeatable(self) -> bool:
        return self._path is not None or self.size == 0

    def begin(self) -> None:
        self.size = 0
        if self._path is not None:
            self._stream = self._path.open("wb")

    def write(self, piece: bytes) -> None:
        assert self._stream is not None
        self.size += len(piece)
        self._stream.write(piece)

    def end(self) -> None:
        """Close a file that this class opened."""
        if self._path is not None and self._stream is not None:
            self._stream.close()
            self._stream = None


class Request(NamedTuple):
    method: str
    path: str  # below the API's root, or a whole URL after a redirect
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeat: Repeat = Repeat.NEVER
    expected: frozenset[int] = SUCCESS_STATUSES
    with_token: bool = True
    file: RequestFile | None = None  # the body, instead of `body`
    to: ResponseFile | None = None  # gets the content of a successful answer

    def url(self, root: str) -> str:
        address = self.path if "://" in self.path else f"{root}{self.path}"
        return f"{address}?{urlencode(self.query)}" if self.query else address


class Answer(NamedTuple):
    """The response of a server."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""


class Failure(NamedTuple):
    """The request got no complete answer."""

    text: str
    sent: bool  # True if the server may have received the request
    final: bool = False  # True if a retry cannot help


Outcome = Answer | Failure


def build_path(*parts: str) -> str:
    """
    >>> build_path("jobs", "a/b", "runs")
    '/jobs/a%2Fb/runs'
    """
    for part in parts:
        if part in ("", ".", ".."):
            raise Misuse(f"{part!r} is not an id. Use a job_id or run_id of the server.")
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def encode_body(value: Any) -> bytes:
    """Return the value as JSON. Times carry their offset, durations are in seconds.

    Raise Misuse for a value that JSON cannot express.

    >>> encode_body({"interval_seconds": timedelta(minutes=5), "name": "é"})
    b'{"interval_seconds":300,"name":"\\xc3\\xa9"}'
    """
    try:
        text = json.dumps(
            value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_json_value
        )
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"The value cannot be encoded as JSON: {error}") from error


def query_parameters(**values: Any) -> tuple[tuple[str, str], ...]:
    """Return the query parameters without None values.

    A trailing underscore is removed. It allows names that are Python keywords.

    >>> query_parameters(from_=None, status=["FAILED", "MISSED"], limit=5)
    (('status', 'FAILED'), ('status', 'MISSED'), ('limit', '5'))
    """
    pairs = []
    for name, value in values.items():
        items = value if isinstance(value, list | tuple | set | frozenset) else [value]
        pairs += [(name.rstrip("_"), _parameter_text(item)) for item in items if item is not None]
    return tuple(pairs)


def idempotency_headers(key: str) -> tuple[tuple[str, str], ...]:
    """Return the idempotency header, which makes the request safe to repeat."""
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise Misuse("idempotency_key must be 1 to 255 printable ASCII characters.")
    return (("idempotency-key", key),)


def format_time(at: datetime) -> str:
    if at.tzinfo is None:
        raise Misuse(f"{at!r} has no time zone. Use datetime.now(UTC), or set tzinfo.")
    return at.astimezone(UTC).isoformat()


def _parameter_text(value: Any) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__}")
