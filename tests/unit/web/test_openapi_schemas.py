"""The document has no construct that breaks a client generator."""

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
VALUE_KEYWORDS = ("examples", "example", "const", "enum")  # values, not schemas
# One model gives a schema for each schedule type.
MODEL_OF_SCHEMA = {
    **dict.fromkeys(("CronJob", "FutureJob", "ImmediateJob", "IntervalJob"), "JobFields"),
    **dict.fromkeys(
        ("CronPreview", "FuturePreview", "ImmediatePreview", "IntervalPreview"), "PreviewFields"
    ),
    **dict.fromkeys(
        ("CronSchedule", "FutureSchedule", "ImmediateSchedule", "IntervalSchedule"),
        "ScheduleFields",
    ),
    "JobChange": "JobFields",
}


def objects(value: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of the document with its path, without the examples."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            if name not in VALUE_KEYWORDS or path.endswith("/properties"):
                yield from objects(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, f"{path}/{index}")


ALL_OBJECTS = list(objects(DOCUMENT))


def types_of(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for title, schema in SCHEMAS.items():
        for name, field in schema.get("properties", {}).items():
            yield title, name, field


def test_enumeration_has_no_repeated_value() -> None:
    enums = {path: item["enum"] for path, item in ALL_OBJECTS if isinstance(item.get("enum"), list)}
    assert len(enums) > 30
    names = {path: [str(value).upper() for value in enum] for path, enum in enums.items()}
    assert [path for path, values in names.items() if len(values) != len(set(values))] == []


def test_array_schema_has_items() -> None:
    arrays = {path: item for path, item in ALL_OBJECTS if "array" in types_of(item)}
    assert len(arrays) > 20
    assert [path for path, item in arrays.items() if not item.get("items")] == []


def test_schemas_have_no_default() -> None:
    in_schemas = [path for path, item in objects(SCHEMAS) if "default" in item]
    assert in_schemas == []


def test_parameter_default_is_a_value_of_its_type() -> None:
    defaults = [
        (parameter["name"], parameter["schema"])
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if "default" in parameter["schema"]
    ]
    assert defaults
    for name, schema in defaults:
        kind = {"integer": int, "string": str}[schema["type"]]
        assert isinstance(schema["default"], kind), name
        assert schema["default"] in schema.get("enum", [schema["default"]]), name


def test_schema_has_either_fields_or_alternatives() -> None:
    both = [
        path
        for path, item in ALL_OBJECTS
        if isinstance(item.get("properties"), dict) and any(name in item for name in ALTERNATIVES)
    ]
    assert both == []


def test_fields_have_a_type_besides_null() -> None:
    assert [(title, name) for title, name, item in fields() if types_of(item) == ["null"]] == []


def test_required_fields_exist() -> None:
    missing = [
        (title, name)
        for title, schema in SCHEMAS.items()
        for name in schema.get("required", ())
        if name not in schema.get("properties", {}) and title != "OpenApi"
    ]
    assert missing == []


def test_fields_do_not_have_the_name_of_their_schema() -> None:
    """In generated Python the field would hide the class."""
    names = {title: re.sub(r"(?<!^)(?=[A-Z])", "_", title).lower() for title in SCHEMAS}
    assert [(title, name) for title, name, _ in fields() if name == names[title]] == []


def test_field_has_the_description_of_its_model() -> None:
    model_names = {new: old for old, new in _SCHEMA_NAMES.items()}
    for title, name, field in fields():
        if "const" in field and "description" not in field:
            continue  # the discriminator needs no description
        descriptions = FIELD_DESCRIPTIONS[MODEL_OF_SCHEMA.get(title, model_names.get(title, title))]
        assert field["description"].startswith(descriptions[name]), f"{title}.{name}"


def test_field_descriptions_name_only_existing_fields() -> None:
    for model, descriptions in FIELD_DESCRIPTIONS.items():
        titles = [
            schema_title for schema_title, made_of in MODEL_OF_SCHEMA.items() if made_of == model
        ] or [_SCHEMA_NAMES.get(model, model)]
        fields_of_model = {name for title in titles for name in SCHEMAS[title]["properties"]}
        assert set(descriptions) <= fields_of_model, model


@pytest.mark.parametrize(
    ("name", "first", "second"),
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
def test_field_of_one_name_has_a_description_for_each_schema(
    name: str, first: str, second: str
) -> None:
    descriptions = [SCHEMAS[title]["properties"][name]["description"] for title in (first, second)]
    assert descriptions[0] != descriptions[1]
