"""The command line reads YAML as values of JSON, each with its line."""

import pytest

from punctual_cli.apply.yaml_lines import Unreadable, dump_yaml, parse_documents

TEXT = """\
# a remark
set: a
jobs:
  - name: one
    on: yes
    day: 2026-12-24
    mode: 0777
    time: 1:30
    rate: 1e3
    text: |
      a
      b
  - &shared {retry: {jitter: false}, none: ~}
  - <<: *shared
    name: two
"""


def test_yaml_values_are_json_values() -> None:
    (document,) = parse_documents(TEXT)
    assert document.value == {
        "set": "a",
        "jobs": [
            {
                "name": "one",
                "on": "yes",
                "day": "2026-12-24",
                "mode": "0777",
                "time": "1:30",
                "rate": 1000.0,
                "text": "a\nb\n",
            },
            {"retry": {"jitter": False}, "none": None},
            {"retry": {"jitter": False}, "none": None, "name": "two"},
        ],
    }


def test_yaml_value_has_its_line() -> None:
    (document,) = parse_documents(TEXT)
    assert document.line_of(("jobs", 0, "day")) == 6
    assert document.line_of(("jobs", 1, "retry", "jitter")) == 13
    assert document.line_of(("jobs", 2, "name")) == 15
    assert document.line_of(("jobs", 0, "not", "there")) == 4
    assert document.line_of(("nothing",)) == 2


def test_yaml_documents_are_separate_and_empty_ones_are_dropped() -> None:
    documents = parse_documents("a: 1\n---\n---\nb: 2\n")
    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}]
    assert documents[1].line_of(("b",)) == 4
    assert parse_documents("") == parse_documents("# nothing\n") == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [\n", 2, "this is not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "a is duplicated"),
        ("a: !!python/object:os.system x\n", 1, "is not supported"),
        ("a: !secret x\n", 1, "is not supported"),
        ("a: *b\n", 1, "undefined alias"),
        ("a: &a [*a]\n", 1, "at most 200,000 values"),
        ("? [a]\n: b\n", 1, "a name must be text"),
        ("a: 1e999\n", 1, "the number is too large"),
        ("a:\n  - b\n <<: 3\n", 3, "this is not valid YAML"),
        ("a:\n  <<: 3\n", 2, "<< must have a mapping"),
        ("\tb: 1\n", 1, "this is not valid YAML"),
        ("a: \x00\n", 1, "this is not valid YAML"),
    ],
)
def test_yaml_without_a_json_value_is_refused_with_its_line(
    text: str, line: int, message: str
) -> None:
    with pytest.raises(Unreadable) as raised:
        parse_documents(text)
    assert raised.value.faults[0].line == line
    assert message in raised.value.faults[0].message


def test_yaml_alias_bomb_is_refused() -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(Unreadable, match="at most 200,000 values"):
        parse_documents("\n".join(levels))


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "- " * 100_000, "{a: " * 5_000])
def test_deeply_nested_yaml_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="100 levels"):
        parse_documents(text)


def test_all_faults_of_a_yaml_file_are_reported() -> None:
    with pytest.raises(Unreadable) as raised:
        parse_documents("a: 1\na: 2\nb: !x y\n")
    assert [fault.line for fault in raised.value.faults] == [2, 3]


def test_written_yaml_is_in_the_usual_form() -> None:
    value = {"on": "yes", "n": "12", "code": "echo a\necho b\n", "list": [{"a": 1}], "e": ""}
    assert dump_yaml(value) == (
        "'on': 'yes'\nn: '12'\ncode: |\n  echo a\n  echo b\nlist:\n  - a: 1\ne: ''\n"
    )
