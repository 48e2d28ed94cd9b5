"""The document holds nothing that breaks a client generator."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from punctual.web.openapi.document import build_document
from punctual.web.openapi.field_descriptions import FIELD_DESCRIPTIONS
from punctual.web.openapi.schemas import _SCHEMA_NAMES

DOCUMENT = build_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
ALTERNATIVES = ("oneOf", "anyOf")
FREE = ("examples", "example", "const", "enum")  # values, not schemas
# One model gives a schema for each schedule type.
MADE_OF = {
    **dict.fromkeys(("CronJob", "FutureJob", "ImmediateJob", "IntervalJob"), "JobFields"),
    **dict.fromkeys(
        ("CronPreview", "FuturePreview", "ImmediatePreview", "IntervalPreview"), "PreviewFields"
    ),
    "JobChange": "JobFields",
}


def objects(value: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of the document with its path, without the examples."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            if name not in FREE or path.endswith("/properties"):
                yield from objects(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, f"{path}/{index}")


EVERYWHERE = list(objects(DOCUMENT))


def types_of(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for title, schema in SCHEMAS.items():
        for name, field in schema.get("properties", {}).items():
            yield title, name, field


def test_no_enumeration_says_a_value_twice() -> None:
    enums = {path: one["enum"] for path, one in EVERYWHERE if isinstance(one.get("enum"), list)}
    assert len(enums) > 30
    names = {path: [str(value).upper() for value in enum] for path, enum in enums.items()}
    assert [path for path, values in names.items() if len(values) != len(set(values))] == []


def test_every_array_says_what_it_holds() -> None:
    arrays = {path: one for path, one in EVERYWHERE if "array" in types_of(one)}
    assert len(arrays) > 20
    assert [path for path, one in arrays.items() if not one.get("items")] == []


def test_no_schema_has_a_default() -> None:
    in_schemas = [path for path, one in objects(SCHEMAS) if "default" in one]
    assert in_schemas == []


def test_a_parameters_default_is_a_plain_value_of_its_type() -> None:
    found = [
        (parameter["name"], parameter["schema"])
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if "default" in parameter["schema"]
    ]
    assert found
    for name, schema in found:
        kind = {"integer": int, "string": str}[schema["type"]]
        assert isinstance(schema["default"], kind), name
        assert schema["default"] in schema.get("enum", [schema["default"]]), name


def test_no_schema_has_fields_and_alternatives_of_its_own() -> None:
    both = [
        path
        for path, one in EVERYWHERE
        if isinstance(one.get("properties"), dict) and any(name in one for name in ALTERNATIVES)
    ]
    assert both == []


def test_no_field_is_only_ever_null() -> None:
    assert [(title, name) for title, name, one in fields() if types_of(one) == ["null"]] == []


def test_what_is_required_is_there() -> None:
    missing = [
        (title, name)
        for title, schema in SCHEMAS.items()
        for name in schema.get("required", ())
        if name not in schema.get("properties", {}) and title != "OpenApi"
    ]
    assert missing == []


def test_no_field_has_the_name_of_its_schema() -> None:
    """In generated Python one hides the other."""
    names = {title: re.sub(r"(?<!^)(?=[A-Z])", "_", title).lower() for title in SCHEMAS}
    assert [(title, name) for title, name, _ in fields() if name == names[title]] == []


def test_every_field_says_what_it_is_in_its_own_schema() -> None:
    former = {new: old for old, new in _SCHEMA_NAMES.items()}
    for title, name, field in fields():
        if "const" in field and "description" not in field:
            continue  # the discriminator needs no description
        words = FIELD_DESCRIPTIONS[MADE_OF.get(title, former.get(title, title))]
        assert field["description"].startswith(words[name]), f"{title}.{name}"


def test_no_words_are_left_of_a_field_that_is_gone() -> None:
    for model, words in FIELD_DESCRIPTIONS.items():
        titles = [t for t, m in MADE_OF.items() if m == model] or [_SCHEMA_NAMES.get(model, model)]
        known = {name for title in titles for name in SCHEMAS[title]["properties"]}
        assert set(words) <= known, model


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("start_time", "CronJob", "Run"),
        ("end_time", "CronJob", "Attempt"),
        ("status", "Job", "Health"),
        ("status", "Run", "Problem"),
        ("version", "Job", "Health"),
        ("lateness_ms", "Run", "Stats"),
        ("count", "Run", "CronPreview"),
        ("count", "Run", "AuditEntry"),
        ("reason", "Run", "Explanation"),
        ("name", "Job", "UpcomingTime"),
        ("job_id", "Job", "AuditEntry"),
        ("token_id", "Token", "Whoami"),
    ],
)
def test_a_name_means_in_each_schema_what_it_means_there(name: str, one: str, other: str) -> None:
    said = [SCHEMAS[title]["properties"][name]["description"] for title in (one, other)]
    assert said[0] != said[1]
