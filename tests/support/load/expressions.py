"""Conditions and updates of DynamoDB, for a table in memory.

Each text is parsed once, since a load repeats few texts many times.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

Row = dict[str, Any]
Names = Mapping[str, str]
Values = Mapping[str, Any]
Operand = Callable[[Row, Names, Values], Any]  # an attribute value, or None
Test = Callable[[Row, Names, Values], bool]
Step = Callable[[Row, Row, Names, Values], None]  # changes the second row by the first one

_TOKEN = re.compile(r"\s*(<=|>=|<>|[#:]?[A-Za-z_][A-Za-z_0-9]*|[=<>(),.+-])")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<>": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def passes(row: Row, expression: str, names: Names, values: Values) -> bool:
    """Return whether a row meets a condition.

    >>> passes({"n": {"N": "2"}}, "#n < :n OR attribute_not_exists(#m)", {"#n": "n", "#m": "n"},
    ...     {":n": {"N": "10"}})
    True
    """
    return _test_of(expression)(row, names, values)


def updated(row: Row, expression: str, names: Names, values: Values) -> Row:
    """Return the row after an update. The given row stays as it is.

    >>> updated({"n": {"N": "2"}}, "ADD #n :n REMOVE #m", {"#n": "n", "#m": "m"},
    ...     {":n": {"N": "10"}})
    {'n': {'N': '12'}}
    """
    changed = dict(row)
    for step in _steps_of(expression):
        step(row, changed, names, values)
    return changed


@cache
def _test_of(expression: str) -> Test:
    parser = _Parser(expression)
    test = parser.alternatives()
    assert parser.is_at_end, expression
    return test


@cache
def _steps_of(expression: str) -> tuple[Step, ...]:
    parser = _Parser(expression)
    steps: list[Step] = []
    while not parser.is_at_end:
        clause = parser.take()
        steps.append(parser.step(clause))
        while parser.takes(","):
            steps.append(parser.step(clause))
    return tuple(steps)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        assert "".join(self._tokens) == re.sub(r"\s", "", text), text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._tokens)

    def take(self) -> str:
        self._at += 1
        return str(self._tokens[self._at - 1])

    def takes(self, token: str) -> bool:
        if self.is_at_end or self._tokens[self._at] != token:
            return False
        self._at += 1
        return True

    def alternatives(self) -> Test:
        tests = [self._all()]
        while self.takes("OR"):
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        return lambda row, names, values: any(test(row, names, values) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self.takes("AND"):
            tests.append(self._one())
        if len(tests) == 1:
            return tests[0]
        return lambda row, names, values: all(test(row, names, values) for test in tests)

    def _one(self) -> Test:
        if self.takes("("):
            test = self.alternatives()
            assert self.takes(")")
            return test
        if self.takes("NOT"):
            refused = self._one()
            return lambda row, names, values: not refused(row, names, values)
        if self.takes("contains"):
            assert self.takes("(")
            members = self._operand()
            assert self.takes(",")
            member = self._operand()
            assert self.takes(")")
            return _membership(members, member)
        for function, is_present in (("attribute_exists", True), ("attribute_not_exists", False)):
            if self.takes(function):
                assert self.takes("(")
                path = self._operand()
                assert self.takes(")")
                return _presence(path, is_present)
        left = self._operand()
        comparison = _COMPARISONS[self.take()]
        return _comparison(left, comparison, self._operand())

    def _operand(self) -> Operand:
        token = self.take()
        if token == "size":
            assert self.takes("(")
            path = self._operand()
            assert self.takes(")")
            return lambda row, names, values: _size(path(row, names, values))
        if token == "if_not_exists":
            assert self.takes("(")
            path = self._operand()
            assert self.takes(",")
            default = self._operand()
            assert self.takes(")")
            return lambda row, names, values: (
                path(row, names, values) or default(row, names, values)
            )
        if token.startswith(":"):
            return lambda _row, _names, values: values[token]
        if self.takes("."):
            inner = self.take()
            return lambda row, names, _values: row.get(names[token], {"M": {}})["M"].get(
                names[inner]
            )
        return lambda row, names, _values: row.get(names.get(token, token))

    def step(self, clause: str) -> Step:
        name = self.take()
        inner = self.take() if self.takes(".") else ""
        if clause == "REMOVE":
            return lambda _row, changed, names, _values: (changed.pop(names[name], None), None)[1]
        if clause == "SET":
            assert self.takes("=")
            return _setting(name, inner, self._sum())
        operand = self._operand()
        change = {"ADD": _added, "DELETE": _without}[clause]

        def apply(row: Row, changed: Row, names: Names, values: Values) -> None:
            after = change(row.get(names[name]), operand(row, names, values))
            if after is None:
                changed.pop(names[name], None)
            else:
                changed[names[name]] = after

        return apply

    def _sum(self) -> Operand:
        left = self._operand()
        if not self.takes("+"):
            return left
        right = self._operand()
        return lambda row, names, values: _added(
            left(row, names, values), right(row, names, values)
        )


def _setting(name: str, inner: str, operand: Operand) -> Step:
    def apply(row: Row, changed: Row, names: Names, values: Values) -> None:
        value = operand(row, names, values)
        assert value is not None, "an update reads an attribute that is not there"
        if inner:
            parts = {**changed[names[name]]["M"], names[inner]: value}
            changed[names[name]] = {"M": parts}
        else:
            changed[names[name]] = value

    return apply


def _presence(path: Operand, is_present: bool) -> Test:
    return lambda row, names, values: (path(row, names, values) is not None) == is_present


def _membership(members: Operand, member: Operand) -> Test:
    def test(row: Row, names: Names, values: Values) -> bool:
        stored, wanted = members(row, names, values), member(row, names, values)
        return stored is not None and wanted["S"] in stored["SS"]

    return test


def _comparison(left: Operand, comparison: Callable[[Any, Any], bool], right: Operand) -> Test:
    def test(row: Row, names: Names, values: Values) -> bool:
        first, second = left(row, names, values), right(row, names, values)
        return (
            first is not None
            and second is not None
            and first.keys() == second.keys()
            and comparison(_comparable(first), _comparable(second))
        )

    return test


def _comparable(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return float(content) if kind == "N" else content


def _size(value: Any) -> Any:
    if value is None:
        return None
    ((_, content),) = value.items()
    return {"N": str(len(content))}


def _added(before: Any, value: Mapping[str, Any]) -> Any:
    if "SS" in value:
        return {"SS": sorted({*value["SS"], *(before or value)["SS"]})}
    return {"N": str((0 if before is None else int(before["N"])) + int(value["N"]))}


def _without(before: Any, value: Mapping[str, Any]) -> Any:
    left = sorted(set(before["SS"]) - set(value["SS"])) if before is not None else []
    return {"SS": left} if left else None
