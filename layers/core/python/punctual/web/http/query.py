"""Query parameters: each known by name, and every wrong one told."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import parse_qsl

from punctual.domain.errors import FieldError, Invalid
from punctual.web.http import timestamps
from punctual.web.models.field_errors import invalid_fields

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
MAX_PARAMETERS = 100
_NUMBER = re.compile(r"[0-9]{1,15}")
# A plus sign in a query string is a space, and often an offset's sign that nobody encoded.
_LOST_PLUS = re.compile(r" (\d\d:\d\d)\Z", re.ASCII)


class Query:
    """Reads parameters and gathers what is wrong; `finish` refuses all of it at once."""

    def __init__(self, text: str, known: Collection[str], repeated: Collection[str] = ()) -> None:
        self._found: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        for name, value in _pairs(text):
            self._values.setdefault(name, []).append(value)
        for name, values in self._values.items():
            if name not in known:
                self.wrong(name[:64], "is not a parameter that this call knows")
            elif len(values) > 1 and name not in repeated:
                self.wrong(name, "must not be given twice")
            elif any("\0" in value for value in values):
                self.wrong(name, "must not hold the character U+0000")

    def wrong(self, name: str, problem: str) -> None:
        self._found.setdefault(name.replace("\0", "\\u0000"), problem)

    def finish(self) -> None:
        if self._found:
            raise invalid_fields(self._found)

    def text(self, name: str) -> str:
        return self._values.get(name, [""])[0]

    def some(self, name: str) -> str:
        """A filter that is empty would pass all, which nobody means."""
        if name in self._values and not self.text(name):
            self.wrong(name, "must not be empty")
        return self.text(name)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def number(self, name: str, default: int, low: int, high: int) -> int:
        if name not in self._values:
            return default
        text = self.text(name)
        value = int(text) if _NUMBER.fullmatch(text) else -1
        if not low <= value <= high:
            self.wrong(name, f"must be an integer from {low} to {high:,}")
        return value

    def choice(self, name: str, allowed: Collection[str]) -> str:
        return next(iter(self.choices(name, allowed)), "")

    def choices(self, name: str, allowed: Collection[str]) -> frozenset[str]:
        chosen = frozenset(self.all(name))
        if not chosen <= frozenset(allowed):
            self.wrong(name, f"must be one of {', '.join(allowed)}")
        return chosen

    def moment(self, name: str) -> datetime | None:
        return self._moment(name, timestamps.parse_time)

    def time_or_local(self, name: str) -> datetime | None:
        """Return a moment, or a time without a zone where the parameter has no offset."""
        return self._moment(name, timestamps.parse_time_or_local)

    def _moment(self, name: str, parse: Callable[[str], datetime]) -> datetime | None:
        if name not in self._values:
            return None
        try:
            return parse(_LOST_PLUS.sub(r"+\1", self.text(name)))
        except ValueError as error:
            self.wrong(name, str(error))
            return None

    def range(self, first: str, last: str) -> tuple[datetime | None, datetime | None]:
        start, end = self.moment(first), self.moment(last)
        if start is not None and end is not None and end <= start:
            self.wrong(last, f"must be after {first}")
        return start, end

    def tags(self) -> tuple[tuple[str, str], ...]:
        pairs = [value.partition(":") for value in self.all("tag")]
        if not all(key and colon for key, colon, _ in pairs):
            self.wrong("tag", "must be key:value")
        return tuple(sorted((key, value) for key, _, value in pairs))


class PageRequest(NamedTuple):
    """What a list call asks for besides its filters."""

    limit: int
    token: str


PAGING_PARAMETERS = ("limit", "next_token")


def page_request(query: Query) -> PageRequest:
    return PageRequest(
        query.number("limit", DEFAULT_PAGE_SIZE, 1, MAX_PAGE_SIZE), query.text("next_token")
    )


def filter_parameters(text: str) -> Mapping[str, list[str]]:
    """What a page's token is bound to: all that was asked but where and how much."""
    kept: dict[str, list[str]] = {}
    for name, value in sorted(_pairs(text)):
        if name not in PAGING_PARAMETERS:
            kept.setdefault(name, []).append(value)
    return kept


def _pairs(text: str) -> list[tuple[str, str]]:
    if not text:
        return []
    try:
        return parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        problem = "holds too many parameters, or one that is not valid UTF-8"
        raise Invalid.of(FieldError("query", problem)) from error
