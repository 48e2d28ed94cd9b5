"""Read YAML as JSON values, with the line of each part.

Dates, on, yes and 0777 stay text. Only true and false are booleans, and only JSON's numbers are
numbers.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

MOST_VALUES = 200_000  # per text; each use of an alias counts
MOST_DEEP = 100
TOO_MUCH = f"must hold at most {MOST_VALUES:,} values, nested {MOST_DEEP} deep"
MAX_YAML_BYTES = 2_000_000
_STR = "tag:yaml.org,2002:str"
_RULES = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)"), "~nN\0"),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)"), "tTfF"),
    ("int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), "-+0123456789"),
    (
        "float",
        re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
        "-+0123456789.",
    ),
)

Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """A fault in a text, with its line and, if several files are read, its file."""

    line: int
    message: str
    file: str = ""


class Unreadable(Exception):
    """The text is not YAML, or holds values that JSON lacks. `faults` lists all faults found."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"line {f.line}: {f.message}" for f in faults))
        self.faults = faults


class Document(NamedTuple):
    """A value, and the line on which each part of it begins."""

    value: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Return the line of the nearest enclosing part that stands in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def _resolvers(base: Any) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, rule, firsts in _RULES:
        for first in firsts:
            key = "" if first == "\0" else first
            found.setdefault(key, []).append((f"tag:yaml.org,2002:{name}", _whole(rule)))
    for first, rules in (base or {}).items():
        found.setdefault(first, []).extend(rules)
    return found


def _whole(rule: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"^(?:{rule.pattern})$")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _resolvers(None) | {
        "<": [("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"))]
    }


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes text which YAML 1.1 or 1.2 would read as another type."""

    yaml_implicit_resolvers = _resolvers(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


# YAML takes these characters for line ends or cannot print them, so they are escaped.
_ODD = re.compile(
    "[^\\n\\t\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if _ODD.search(text):
        return dumper.represent_scalar(_STR, text, style='"')
    block = "\n" in text and text.strip() and all(_keeps(line) for line in text.split("\n"))
    return dumper.represent_scalar(_STR, text, style="|" if block else None)


def _keeps(line: str) -> bool:
    return line == line.rstrip()


_Dumper.add_representer(str, _represent_text)


def written(value: Any) -> str:
    """Return a value as YAML in block style. Reading it again gives the same value."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96))


def documents(text: str) -> list[Document]:
    """Return every document of the text that is not empty."""
    _check_size(text)
    try:
        _refuse_depth(text)
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(Fault(mark.line + 1 if mark else 1, _said(error))) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(Fault(1, _first_line(error))) from error
    reader = _Reader()
    found = [reader.document(node) for node in nodes if node is not None]
    if reader.faults:
        raise Unreadable(*reader.faults)
    return [document for document in found if document.value is not None]


def _check_size(text: str) -> None:
    """Refuse a long text before the parser reads it, because parsing takes seconds for each MB."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_YAML_BYTES:
        message = (
            f"the YAML has {size:,} bytes; at most {MAX_YAML_BYTES:,} are read: "
            "split it into several files, or write it as JSON"
        )
        raise Unreadable(Fault(1, message))


def _refuse_depth(text: str) -> None:
    """Refuse deep nesting before nodes are composed. The composer recurses without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEEP:
                mark = event.start_mark
                raise Unreadable(Fault(mark.line + 1 if mark else 1, TOO_MUCH))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _said(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return "this is no YAML: " + ", ".join(str(part) for part in parts)


def _first_line(error: Exception) -> str:
    return f"this is no YAML: {str(error).splitlines()[0] if str(error) else 'nested too deep'}"


class _Reader:
    """A converter from nodes to values. It continues after a fault."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._lines: dict[Path, int] = {}
        self._left = MOST_VALUES

    def document(self, node: yaml.Node) -> Document:
        self._lines = {}
        value = self._value(node, ())
        return Document(value, self._lines)

    def _fault(self, node: yaml.Node, message: str) -> None:
        self.faults.append(Fault(node.start_mark.line + 1, message))

    def _value(self, node: yaml.Node, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        self._left -= 1
        if self._left < 0 or len(path) > MOST_DEEP:
            raise Unreadable(Fault(node.start_mark.line + 1, TOO_MUCH))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(inner, (*path, i)) for i, inner in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        value: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, inner in node.value:
            if key.tag.endswith(":merge"):
                merged = {**self._merged(inner, path), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, "a name must be text")
                continue
            name = str(key.value)
            if name in value:
                self._fault(key, f"{name} stands here twice")
                continue
            self._lines[(*path, name)] = key.start_mark.line + 1
            value[name] = self._value(inner, (*path, name))
        return {**merged, **value}

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                merged = {**self._value(source, path), **merged}
            else:
                self._fault(source, "<< takes a mapping, or a list of mappings")
        return merged

    def _scalar(self, node: yaml.Node) -> Any:
        text = node.value
        match node.tag.rpartition(":")[2]:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return self._number(node, int)
            case "float":
                return self._number(node, float)
            case "str":
                return text
        self._fault(node, f"{node.tag} is not known here")
        return None

    def _number(self, node: yaml.Node, kind: type[int] | type[float]) -> Any:
        try:
            number = kind(node.value)
        except ValueError:
            self._fault(node, f"{node.value[:40]!r} is no number")
            return None
        if number in (float("inf"), float("-inf")):
            self._fault(node, "the number is too large")
        return number


def places(path: str) -> Iterator[str | int]:
    """Yield the parts of a field's path as the API names it.

    >>> tuple(places("notify.0.url"))
    ('notify', 0, 'url')
    """
    for part in path.split("."):
        yield int(part) if part.isdecimal() else part
