"""Read YAML as JSON values, with the line of each part.

Dates, on, yes and 0777 stay text. Only true and false are booleans, and only JSON's numbers are
numbers.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

MAX_DOCUMENT_VALUES = 200_000  # per text; each use of an alias counts
MAX_DOCUMENT_DEPTH = 100
DOCUMENT_LIMIT_MESSAGE = (
    f"must have at most {MAX_DOCUMENT_VALUES:,} values and {MAX_DOCUMENT_DEPTH} levels"
)
MAX_YAML_BYTES = 2_000_000
_STRING_TAG = "tag:yaml.org,2002:str"
_SCALAR_RULES = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)"), "~nN\0"),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)"), "tTfF"),
    ("int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), "-+0123456789"),
    (
        "float",
        re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
        "-+0123456789.",
    ),
)

FieldPath = tuple[str | int, ...]


class Fault(NamedTuple):
    """A fault in a text, with its line and, if several files are read, its file."""

    line: int
    message: str
    file: str = ""


class Unreadable(Exception):
    """The text is not YAML, or holds values that JSON lacks. `faults` lists all faults found."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"line {fault.line}: {fault.message}" for fault in faults))
        self.faults = faults


class Document(NamedTuple):
    """A value, and the line on which each part of it begins."""

    value: Any
    lines: dict[FieldPath, int]

    def line_of(self, path: FieldPath) -> int:
        """Return the line of the nearest enclosing part that stands in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def _build_resolvers(base: Any) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, rule, first_characters in _SCALAR_RULES:
        for character in first_characters:
            resolver_key = "" if character == "\0" else character
            resolvers.setdefault(resolver_key, []).append(
                (f"tag:yaml.org,2002:{name}", _match_whole(rule))
            )
    for character, rules in (base or {}).items():
        resolvers.setdefault(character, []).extend(rules)
    return resolvers


def _match_whole(rule: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"^(?:{rule.pattern})$")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _build_resolvers(None) | {
        "<": [("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"))]
    }


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes text which YAML 1.1 or 1.2 would read as another type."""

    yaml_implicit_resolvers = _build_resolvers(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


# YAML takes these characters for line ends or cannot print them, so they are escaped.
_UNSAFE_CHARACTERS = re.compile(
    "[^\\n\\t\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if _UNSAFE_CHARACTERS.search(text):
        return dumper.represent_scalar(_STRING_TAG, text, style='"')
    is_block = (
        "\n" in text
        and text.strip()
        and all(_has_no_trailing_space(line) for line in text.split("\n"))
    )
    return dumper.represent_scalar(_STRING_TAG, text, style="|" if is_block else None)


def _has_no_trailing_space(line: str) -> bool:
    return line == line.rstrip()


_Dumper.add_representer(str, _represent_text)


def dump_yaml(value: Any) -> str:
    """Return a value as YAML in block style. Reading it again gives the same value."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96))


def parse_documents(text: str) -> list[Document]:
    """Return every document of the text that is not empty."""
    _check_size(text)
    try:
        _check_depth(text)
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(Fault(mark.line + 1 if mark else 1, _describe_error(error))) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(Fault(1, _summarize_error(error))) from error
    reader = _Reader()
    parsed = [reader.read_document(node) for node in nodes if node is not None]
    if reader.faults:
        raise Unreadable(*reader.faults)
    return [document for document in parsed if document.value is not None]


def _check_size(text: str) -> None:
    """Refuse a long text before the parser reads it, because parsing takes seconds for each MB."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_YAML_BYTES:
        message = (
            f"the YAML has {size:,} bytes; the limit is {MAX_YAML_BYTES:,}; "
            "split it into several files, or write it as JSON"
        )
        raise Unreadable(Fault(1, message))


def _check_depth(text: str) -> None:
    """Refuse deep nesting before nodes are composed. The composer recurses without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DOCUMENT_DEPTH:
                mark = event.start_mark
                raise Unreadable(Fault(mark.line + 1 if mark else 1, DOCUMENT_LIMIT_MESSAGE))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _describe_error(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return "this is not valid YAML: " + ", ".join(str(part) for part in parts)


def _summarize_error(error: Exception) -> str:
    cause = str(error).splitlines()[0] if str(error) else "nested too deeply"
    return f"this is not valid YAML: {cause}"


class _Reader:
    """A converter from nodes to values. It continues after a fault."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._lines: dict[FieldPath, int] = {}
        self._remaining_values = MAX_DOCUMENT_VALUES

    def read_document(self, node: yaml.Node) -> Document:
        self._lines = {}
        value = self._read_value(node, ())
        return Document(value, self._lines)

    def _add_fault(self, node: yaml.Node, message: str) -> None:
        self.faults.append(Fault(node.start_mark.line + 1, message))

    def _read_value(self, node: yaml.Node, path: FieldPath) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        self._remaining_values -= 1
        if self._remaining_values < 0 or len(path) > MAX_DOCUMENT_DEPTH:
            raise Unreadable(Fault(node.start_mark.line + 1, DOCUMENT_LIMIT_MESSAGE))
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._read_value(inner, (*path, index)) for index, inner in enumerate(node.value)
            ]
        return self._read_scalar(node)

    def _read_mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        value: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, inner in node.value:
            if key.tag.endswith(":merge"):
                merged = {**self._read_merged(inner, path), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._add_fault(key, "a name must be text")
                continue
            name = str(key.value)
            if name in value:
                self._add_fault(key, f"{name} is duplicated")
                continue
            self._lines[(*path, name)] = key.start_mark.line + 1
            value[name] = self._read_value(inner, (*path, name))
        return {**merged, **value}

    def _read_merged(self, node: yaml.Node, path: FieldPath) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                merged = {**self._read_value(source, path), **merged}
            else:
                self._add_fault(source, "<< must have a mapping, or a list of mappings")
        return merged

    def _read_scalar(self, node: yaml.Node) -> Any:
        text = node.value
        match node.tag.rpartition(":")[2]:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return self._read_number(node, int)
            case "float":
                return self._read_number(node, float)
            case "str":
                return text
        self._add_fault(node, f"the type {node.tag} is not supported")
        return None

    def _read_number(self, node: yaml.Node, number_type: type[int] | type[float]) -> Any:
        try:
            number = number_type(node.value)
        except ValueError:
            self._add_fault(node, f"{node.value[:40]!r} is not a number")
            return None
        if number in (float("inf"), float("-inf")):
            self._add_fault(node, "the number is too large")
        return number


def split_field_path(path: str) -> Iterator[str | int]:
    """Yield the parts of a field's path as the API names it.

    >>> tuple(split_field_path("notify.0.url"))
    ('notify', 0, 'url')
    """
    for part in path.split("."):
        yield int(part) if part.isdecimal() else part
