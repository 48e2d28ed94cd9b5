"""JSON as the command line reads it from a file: all of it, also what YAML's readers refuse."""

import json

import pytest

from punctual_cli.apply.json_lines import parse_documents
from punctual_cli.apply.yaml_lines import MAX_DOCUMENT_DEPTH, Unreadable


def test_each_part_knows_its_line() -> None:
    (found,) = parse_documents('{\n"a": [1,\n 2.5, {"b": null}],\n\t"c": true}\n')
    assert found.value == {"a": [1, 2.5, {"b": None}], "c": True}
    assert found.lines == {
        (): 1,
        ("a",): 2,
        ("a", 0): 2,
        ("a", 1): 3,
        ("a", 2): 3,
        ("a", 2, "b"): 3,
        ("c",): 4,
    }


@pytest.mark.parametrize("text", ["😀", "\x7f", "\x85\u2028", "\ufffe", "a/b\\ud83d", '"'])
def test_what_json_can_say_is_read_however_it_is_written(text: str) -> None:
    for as_ascii in (True, False):
        (found,) = parse_documents(json.dumps([{"name": text}], ensure_ascii=as_ascii))
        assert found.value == [{"name": text}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n"a": 2}', "line 2: a stands here twice"),
        ('{"a": 1e999}', "line 1: the number is too large"),
        ('{"a": ' + "9" * 5_000 + "}", "line 1: '9999999999999999999999999999999999999999' is no"),
        ('\n{"a": "\\ud800"}', r"line 2: half of a character stands here (\ud800 to \udfff)"),
        ("[" * 102 + "]" * 102, f"nested {MAX_DOCUMENT_DEPTH} deep"),
        ("[1, 2", "this is no YAML"),
        ('{"a": 1} {"b": 2}', "this is no YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(Unreadable) as told:
        parse_documents(text)
    assert said in str(told.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Unreadable) as told:
        parse_documents('{"a": 1, "a": 2,\n "b": 1e999, "c": {"d": "\\udc00"}}')
    assert [fault.line for fault in told.value.faults] == [1, 2, 2]


@pytest.mark.parametrize("text", ["{name: x, at: [1, 2]}", "[a, {b: c}]", '{"a": 1,}'])
def test_braces_alone_are_no_json_and_yaml_reads_them(text: str) -> None:
    (found,) = parse_documents(text)
    assert found.value in ({"name": "x", "at": [1, 2]}, ["a", {"b": "c"}], {"a": 1})


def test_nothing_holds_nothing() -> None:
    assert parse_documents("") == parse_documents("\n# a remark\n") == []
