"""The command line reads the YAML that it writes, and any JSON."""

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from punctual_cli.apply import json_lines
from punctual_cli.apply.yaml_lines import dump_yaml, parse_documents

TEXT = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    [
        "1e5",
        "0o17",
        "0x1f",
        "1_000",
        "~",
        "null",
        "True",
        "no",
        "2026-12-24",
        "1:30",
        "=",
        "<<",
        "- a",
    ]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4))
def test_yaml_value_round_trips(value: dict[str, object]) -> None:
    (document,) = parse_documents(dump_yaml(value))
    assert document.value == value
    assert json.dumps(document.value) == json.dumps(value)  # 1 is not 1.0, nor true


@given(st.dictionaries(TEXT, TEXT, min_size=1, max_size=4))
def test_written_text_is_text_for_other_yaml_readers(value: dict[str, str]) -> None:
    assert yaml.safe_load(dump_yaml(value)) == value


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), st.booleans())
def test_any_json_value_is_read(value: dict[str, object], as_ascii: bool) -> None:
    (document,) = json_lines.parse_documents(json.dumps(value, ensure_ascii=as_ascii, indent=1))
    assert json.dumps(document.value) == json.dumps(value)
