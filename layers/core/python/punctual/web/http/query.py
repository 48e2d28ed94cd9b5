"""Read query parameters, and report every wrong one by name."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from urllib.parse import parse_qsl
from uuid import UUID

from punctual.domain import timestamps
from punctual.domain.errors import FieldError, Invalid
from punctual.web.models.field_errors import invalid_fields

MAX_PARAMETERS = 100
PAGING_PARAMETERS = ("limit", "next_token")
_DECIMAL_DIGITS = re.compile(r"[0-9]{1,15}")
# A plus sign in a query string means a space. Clients often forget to encode that of an offset.
_LOST_PLUS = re.compile(r" (\d\d:\d\d)\Z", re.ASCII)


class Query:
    """Read parameters and collect errors. `finish` raises all errors at once."""

    def __init__(self, text: str, allowed: Collection[str], repeated: Collection[str] = ()) -> None:
        self._errors: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        for name, value in _pairs(text):
            self._values.setdefault(name, []).append(value)
        for name, values in self._values.items():
            if name not in allowed:
                self.add_error(name[:64], "is not a parameter of this call")
            elif len(values) > 1 and name not in repeated:
                self.add_error(name, "must not be given twice")
            elif any("\0" in value for value in values):
                self.add_error(name, "must not hold the character U+0000")

    def add_error(self, name: str, message: str) -> None:
        self._errors.setdefault(name.replace("\0", "\\u0000"), message)

    def finish(self) -> None:
        if self._errors:
            raise invalid_fields(self._errors)

    def text(self, name: str) -> str:
        return self._values.get(name, [""])[0]

    def filter_text(self, name: str) -> str:
        """Return the text of a filter. An empty filter would match all, so it is an error."""
        if name in self._values and not self.text(name):
            self.add_error(name, "must not be empty")
        return self.text(name)

    def values(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def number(self, name: str, default: int, low: int, high: int) -> int:
        if name not in self._values:
            return default
        text = self.text(name)
        value = int(text) if _DECIMAL_DIGITS.fullmatch(text) else -1
        if not low <= value <= high:
            self.add_error(name, f"must be an integer from {low} to {high:,}")
        return value

    def choice(self, name: str, allowed: Collection[str]) -> str:
        return next(iter(self.choices(name, allowed)), "")

    def choices(self, name: str, allowed: Collection[str]) -> frozenset[str]:
        chosen = frozenset(self.values(name))
        if not chosen <= frozenset(allowed):
            self.add_error(name, f"must be one of {', '.join(allowed)}")
        return chosen

    def uuid(self, name: str) -> str:
        """Return an id in lower case, or an empty text if the parameter is absent or wrong."""
        if name not in self._values:
            return ""
        text = self.text(name).lower()
        try:
            is_id = str(UUID(text)) == text
        except ValueError:
            is_id = False
        if not is_id:
            self.add_error(name, "must be an id")
        return text if is_id else ""

    def time(self, name: str) -> datetime | None:
        return self._time(name, timestamps.parse_time)

    def time_or_local(self, name: str) -> datetime | None:
        """Return a time, without a zone if the parameter has no offset."""
        return self._time(name, timestamps.parse_time_or_local)

    def _time(self, name: str, parse: Callable[[str], datetime]) -> datetime | None:
        if name not in self._values:
            return None
        try:
            return parse(_LOST_PLUS.sub(r"+\1", self.text(name)))
        except ValueError as error:
            self.add_error(name, str(error))
            return None

    def range(self, first: str, last: str) -> tuple[datetime | None, datetime | None]:
        start, end = self.time(first), self.time(last)
        if start is not None and end is not None and end <= start:
            self.add_error(last, f"must be after {first}")
        return start, end

    def tags(self) -> tuple[tuple[str, str], ...]:
        pairs = [value.partition(":") for value in self.values("tag")]
        if not all(key and colon for key, colon, _ in pairs):
            self.add_error("tag", "must be key:value")
        return tuple(sorted((key, value) for key, _, value in pairs))


def filter_parameters(text: str) -> Mapping[str, list[str]]:
    """Return all parameters but those of paging. A page token is bound to them."""
    filters: dict[str, list[str]] = {}
    for name, value in sorted(_pairs(text)):
        if name not in PAGING_PARAMETERS:
            filters.setdefault(name, []).append(value)
    return filters


def _pairs(text: str) -> list[tuple[str, str]]:
    if not text:
        return []
    try:
        return parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        text = f"must hold at most {MAX_PARAMETERS} parameters, in valid UTF-8"
        raise Invalid.of(FieldError("query", text)) from error
