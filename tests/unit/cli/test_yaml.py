"""YAML as the command line reads it: JSON's values, each with its line."""

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


def test_values_are_those_that_json_would_have() -> None:
    (found,) = parse_documents(TEXT)
    assert found.value == {
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


def test_each_part_knows_its_line() -> None:
    (found,) = parse_documents(TEXT)
    assert found.line_of(("jobs", 0, "day")) == 6
    assert found.line_of(("jobs", 1, "retry", "jitter")) == 13
    assert found.line_of(("jobs", 2, "name")) == 15
    assert found.line_of(("jobs", 0, "not", "there")) == 4
    assert found.line_of(("nothing",)) == 2


def test_documents_are_apart_and_empty_ones_are_none() -> None:
    found = parse_documents("a: 1\n---\n---\nb: 2\n")
    assert [one.value for one in found] == [{"a": 1}, {"b": 2}]
    assert found[1].line_of(("b",)) == 4
    assert parse_documents("") == parse_documents("# nothing\n") == []


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: [\n", 2, "this is no YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "a stands here twice"),
        ("a: !!python/object:os.system x\n", 1, "is not known here"),
        ("a: !secret x\n", 1, "is not known here"),
        ("a: *b\n", 1, "undefined alias"),
        ("a: &a [*a]\n", 1, "at most 200,000 values"),
        ("? [a]\n: b\n", 1, "a name must be text"),
        ("a: 1e999\n", 1, "the number is too large"),
        ("a:\n  - b\n <<: 3\n", 3, "this is no YAML"),
        ("a:\n  <<: 3\n", 2, "<< takes a mapping"),
        ("\tb: 1\n", 1, "this is no YAML"),
        ("a: \x00\n", 1, "this is no YAML"),
    ],
)
def test_what_json_cannot_say_is_refused_by_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(Unreadable) as found:
        parse_documents(text)
    assert found.value.faults[0].line == line
    assert said in found.value.faults[0].message


def test_a_bomb_of_aliases_is_refused_soon() -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(Unreadable, match="at most 200,000 values"):
        parse_documents("\n".join(levels))


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "- " * 100_000, "{a: " * 5_000])
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="nested 100 deep"):
        parse_documents(text)


def test_every_fault_is_found_and_not_only_the_first() -> None:
    with pytest.raises(Unreadable) as found:
        parse_documents("a: 1\na: 2\nb: !x y\n")
    assert [fault.line for fault in found.value.faults] == [2, 3]


def test_what_is_written_reads_as_people_would_write_it() -> None:
    value = {"on": "yes", "n": "12", "code": "echo a\necho b\n", "list": [{"a": 1}], "e": ""}
    assert dump_yaml(value) == (
        "'on': 'yes'\nn: '12'\ncode: |\n  echo a\n  echo b\nlist:\n  - a: 1\ne: ''\n"
    )
