"""Read JSON with the line of each part. It also accepts JSON that YAML rejects."""

import json
from bisect import bisect
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import NUMBER_RE
from typing import Any

from punctual_cli.apply import yaml_lines
from punctual_cli.apply.yaml_lines import (
    DOCUMENT_LIMIT_MESSAGE,
    MAX_DOCUMENT_DEPTH,
    MAX_DOCUMENT_VALUES,
    Document,
    Fault,
    FieldPath,
    Unreadable,
)

_JSON_WHITESPACE = " \t\n\r"
_JSON_LITERALS = {"true": True, "false": False, "null": None}


class NotJson(Exception):
    """The text is not JSON. It may be YAML."""


def parse_documents(text: str) -> list[Document]:
    """Return the documents of a text that holds JSON or YAML."""
    reader = _Reader(text)
    try:
        value = reader.read()
    except NotJson:
        return yaml_lines.parse_documents(text)
    if reader.faults:
        raise Unreadable(*reader.faults)
    return [Document(value, reader.lines)]


class _Reader:
    """A parser that makes one pass. It continues after faults that do not break the syntax."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self.lines: dict[FieldPath, int] = {}
        self._text = text
        self._position = 0
        self._remaining_values = MAX_DOCUMENT_VALUES
        self._newline_positions = [
            position for position, character in enumerate(text) if character == "\n"
        ]

    def read(self) -> Any:
        self._skip_whitespace()
        if self._peek() not in ("{", "["):  # YAML reads a bare word
            raise NotJson
        value = self._read_value(())
        self._skip_whitespace()
        if self._position < len(self._text):
            raise NotJson
        return value

    def _read_value(self, path: FieldPath) -> Any:
        self.lines.setdefault(path, self._line_number())
        self._remaining_values -= 1
        if self._remaining_values < 0 or len(path) > MAX_DOCUMENT_DEPTH:
            raise Unreadable(Fault(self._line_number(), DOCUMENT_LIMIT_MESSAGE))
        match self._peek():
            case "{":
                return self._read_mapping(path)
            case "[":
                return self._read_sequence(path)
            case '"':
                return self._read_string()
        for literal, value in _JSON_LITERALS.items():
            if self._text.startswith(literal, self._position):
                self._position += len(literal)
                return value
        return self._read_number()

    def _read_mapping(self, path: FieldPath) -> dict[str, Any]:
        value: dict[str, Any] = {}
        self._position += 1
        self._skip_whitespace()
        while self._peek() != "}":
            line = self._line_number()
            if self._peek() != '"':
                raise NotJson
            name = self._read_string()
            self._expect(":")
            if name in value:
                self.faults.append(Fault(line, f"{name} is duplicated"))
            self.lines.setdefault((*path, name), line)
            value.setdefault(name, self._read_value((*path, name)))
            self._read_separator("}")
        self._position += 1
        return value

    def _read_sequence(self, path: FieldPath) -> list[Any]:
        value: list[Any] = []
        self._position += 1
        self._skip_whitespace()
        while self._peek() != "]":
            value.append(self._read_value((*path, len(value))))
            self._read_separator("]")
        self._position += 1
        return value

    def _read_separator(self, end: str) -> None:
        """Return after the end of a container, or after a comma that another part follows."""
        self._skip_whitespace()
        if self._peek() == end:
            return
        self._expect(",")
        if self._peek() == end:
            raise NotJson

    def _read_string(self) -> str:
        line = self._line_number()
        try:
            text, self._position = scanstring(self._text, self._position + 1, True)
        except json.JSONDecodeError as error:
            raise NotJson from error
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.faults.append(
                Fault(line, "the text has an unpaired surrogate (\\ud800 to \\udfff)")
            )
        return str(text)

    def _read_number(self) -> Any:
        match = NUMBER_RE.match(self._text, self._position)
        if match is None:
            raise NotJson
        self._position = match.end()
        integer, fraction, exponent = match.groups()
        try:
            number = float(match[0]) if fraction or exponent else int(integer)
        except ValueError:  # Python limits the number of digits
            self.faults.append(Fault(self._line_number(), f"{match[0][:40]!r} is not a number"))
            return None
        if number in (float("inf"), float("-inf")):
            self.faults.append(Fault(self._line_number(), "the number is too large"))
        return number

    def _expect(self, character: str) -> None:
        self._skip_whitespace()
        if self._peek() != character:
            raise NotJson
        self._position += 1
        self._skip_whitespace()

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip_whitespace(self) -> None:
        while self._peek() and self._peek() in _JSON_WHITESPACE:
            self._position += 1

    def _line_number(self) -> int:
        return bisect(self._newline_positions, self._position - 1) + 1
