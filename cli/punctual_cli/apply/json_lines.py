"""Read JSON with the line of each part. It also accepts JSON that YAML rejects."""

import json
from bisect import bisect
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import NUMBER_RE
from typing import Any

from punctual_cli.apply import yaml_lines
from punctual_cli.apply.yaml_lines import (
    MOST_DEEP,
    MOST_VALUES,
    TOO_MUCH,
    Document,
    Fault,
    Path,
    Unreadable,
)

_SPACE = " \t\n\r"
_JSON_LITERALS = {"true": True, "false": False, "null": None}


class NoJson(Exception):
    """The text is not JSON. It may be YAML."""


def documents(text: str) -> list[Document]:
    """Return the documents of a text that holds JSON or YAML."""
    reader = _Reader(text)
    try:
        value = reader.whole()
    except NoJson:
        return yaml_lines.documents(text)
    if reader.faults:
        raise Unreadable(*reader.faults)
    return [Document(value, reader.lines)]


class _Reader:
    """A parser that makes one pass. It continues after faults that do not break the syntax."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._left = MOST_VALUES
        self._ends = [at for at, letter in enumerate(text) if letter == "\n"]

    def whole(self) -> Any:
        self._skip()
        if self._next() not in ("{", "["):  # YAML reads a bare word
            raise NoJson
        value = self._value(())
        self._skip()
        if self._at < len(self._text):
            raise NoJson
        return value

    def _value(self, path: Path) -> Any:
        self.lines.setdefault(path, self._line())
        self._left -= 1
        if self._left < 0 or len(path) > MOST_DEEP:
            raise Unreadable(Fault(self._line(), TOO_MUCH))
        match self._next():
            case "{":
                return self._mapping(path)
            case "[":
                return self._sequence(path)
            case '"':
                return self._string()
        for word, value in _JSON_LITERALS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._number()

    def _mapping(self, path: Path) -> dict[str, Any]:
        value: dict[str, Any] = {}
        self._at += 1
        self._skip()
        while self._next() != "}":
            line = self._line()
            if self._next() != '"':
                raise NoJson
            name = self._string()
            self._take(":")
            if name in value:
                self.faults.append(Fault(line, f"{name} stands here twice"))
            self.lines.setdefault((*path, name), line)
            value.setdefault(name, self._value((*path, name)))
            self._more("}")
        self._at += 1
        return value

    def _sequence(self, path: Path) -> list[Any]:
        value: list[Any] = []
        self._at += 1
        self._skip()
        while self._next() != "]":
            value.append(self._value((*path, len(value))))
            self._more("]")
        self._at += 1
        return value

    def _more(self, end: str) -> None:
        """Return after the end of a container, or after a comma that another part follows."""
        self._skip()
        if self._next() == end:
            return
        self._take(",")
        if self._next() == end:
            raise NoJson

    def _string(self) -> str:
        line = self._line()
        try:
            text, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            raise NoJson from error
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            self.faults.append(Fault(line, "half of a character stands here (\\ud800 to \\udfff)"))
        return str(text)

    def _number(self) -> Any:
        found = NUMBER_RE.match(self._text, self._at)
        if found is None:
            raise NoJson
        self._at = found.end()
        whole, fraction, exponent = found.groups()
        try:
            number = float(found[0]) if fraction or exponent else int(whole)
        except ValueError:  # Python limits the number of digits
            self.faults.append(Fault(self._line(), f"{found[0][:40]!r} is no number"))
            return None
        if number in (float("inf"), float("-inf")):
            self.faults.append(Fault(self._line(), "the number is too large"))
        return number

    def _take(self, letter: str) -> None:
        self._skip()
        if self._next() != letter:
            raise NoJson
        self._at += 1
        self._skip()

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        while self._next() and self._next() in _SPACE:
            self._at += 1

    def _line(self) -> int:
        return bisect(self._ends, self._at - 1) + 1
