"""The command line reads all of JSON from a file, also parts that YAML's readers refuse."""

import json

import pytest

from punctual_cli.apply.json_lines import parse_documents
from punctual_cli.apply.yaml_lines import MAX_DOCUMENT_DEPTH, Unreadable


def test_json_value_has_its_line() -> None:
    (document,) = parse_documents('{\n"a": [1,\n 2.5, {"b": null}],\n\t"c": true}\n')
    assert document.value == {"a": [1, 2.5, {"b": None}], "c": True}
    assert document.lines == {
        (): 1,
        ("a",): 2,
        ("a", 0): 2,
        ("a", 1): 3,
        ("a", 2): 3,
        ("a", 2, "b"): 3,
        ("c",): 4,
    }


@pytest.mark.parametrize("text", ["😀", "\x7f", "\x85\u2028", "\ufffe", "a/b\\ud83d", '"'])
def test_json_text_is_read_in_each_encoding(text: str) -> None:
    for as_ascii in (True, False):
        (document,) = parse_documents(json.dumps([{"name": text}], ensure_ascii=as_ascii))
        assert document.value == [{"name": text}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n"a": 2}', "line 2: a is duplicated"),
        ('{"a": 1e999}', "line 1: the number is too large"),
        ('{"a": ' + "9" * 5_000 + "}", "line 1: '9999999999999999999999999999999999999999' is no"),
        ('\n{"a": "\\ud800"}', r"line 2: the text has an unpaired surrogate (\ud800 to \udfff)"),
        ("[" * 102 + "]" * 102, f"{MAX_DOCUMENT_DEPTH} levels"),
        ("[1, 2", "this is not valid YAML"),
        ('{"a": 1} {"b": 2}', "this is not valid YAML"),
    ],
)
def test_wrong_json_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as raised:
        parse_documents(text)
    assert message in str(raised.value)


def test_wrong_json_is_reported_with_all_faults_at_once() -> None:
    with pytest.raises(Unreadable) as raised:
        parse_documents('{"a": 1, "a": 2,\n "b": 1e999, "c": {"d": "\\udc00"}}')
    assert [fault.line for fault in raised.value.faults] == [1, 2, 2]


@pytest.mark.parametrize("text", ["{name: x, at: [1, 2]}", "[a, {b: c}]", '{"a": 1,}'])
def test_flow_style_yaml_is_read(text: str) -> None:
    (document,) = parse_documents(text)
    assert document.value in ({"name": "x", "at": [1, 2]}, ["a", {"b": "c"}], {"a": 1})


def test_empty_file_has_no_documents() -> None:
    assert parse_documents("") == parse_documents("\n# a remark\n") == []
