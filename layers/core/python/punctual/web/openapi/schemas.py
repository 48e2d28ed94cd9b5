"""JSON schemas from the models: those that check what is sent, and those of the answers.

A schema may be wider than what the routes take (the meaning of a field is theirs to check), never
narrower: nothing that they take is refused by it.

No schema has a `default`: generated clients would send it, or ask for the field. `max_retries` 3
beside AT_MOST_ONCE would then be refused. A description names the default instead.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from punctual.domain.schedules.cron.expression import MAX_LENGTH
from punctual.web.models import job_rules
from punctual.web.models import task as task_fields
from punctual.web.models.bodies import (
    BackfillFields,
    BatchFields,
    NoFields,
    PreviewFields,
    ResumeFields,
    RunNowFields,
)
from punctual.web.models.defaults import DEFAULTS
from punctual.web.models.job import JobFields
from punctual.web.models.schedule import REQUIRED_FIELDS
from punctual.web.models.schedule_types import TYPES_OF_FIELD
from punctual.web.openapi.words import FIELD_DESCRIPTIONS

Schema = dict[str, Any]
REF = "#/components/schemas/"

_BODIES: tuple[type[BaseModel], ...] = (
    JobFields,
    PreviewFields,
    BatchFields,
    NoFields,
    ResumeFields,
    RunNowFields,
    BackfillFields,
)
# What a client's generated code calls them.
_SCHEMA_NAMES = {
    "NoFields": "Nothing",
    "ResumeFields": "Resume",
    "RunNowFields": "RunNow",
    "BackfillFields": "Backfill",
    "BatchFields": "Batch",
    "TokenFields": "TokenRequest",
    "JobStatus": "JobState",
    "JobStatusAnswer": "JobStatus",
    "Kind": "ScheduleType",
}
_SCHEDULE_TYPES = ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL")
_FORMATS = {
    **dict.fromkeys(
        ("schedule_time", "start_time", "end_time", "from", "to", "expires_at"), "date-time"
    ),
    "cron_expression": "cron",
    "timezone": "timezone",
}
_NO_CONTROL = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"
_LONG_TASK_TYPES = list(task_fields.LONG_TASK_TYPES)


def ref(name: str) -> Schema:
    return {"$ref": REF + name}


def schema_components(
    answers: Iterable[type[BaseModel]], bodies: Iterable[type[BaseModel]]
) -> Schema:
    """All schemas by name; `bodies` are those besides the ones that jobs and schedules have."""
    sent = [*_BODIES, *bodies]
    _, found = models_json_schema(
        [(model, "validation") for model in [*sent, *answers]], ref_template=REF + "{model}"
    )
    schemas: Schema = {
        _SCHEMA_NAMES.get(name, name): _described(_plain(schema), FIELD_DESCRIPTIONS.get(name, {}))
        for name, schema in found["$defs"].items()
    }
    for model in sent:
        _say_formats(schemas[_SCHEMA_NAMES.get(model.__name__, model.__name__)])
    job_fields, preview = schemas.pop("JobFields"), schemas.pop("PreviewFields")
    for fields in (job_fields, preview):
        fields["properties"]["cron_expression"]["anyOf"][0]["maxLength"] = MAX_LENGTH
    _tighten(job_fields["properties"])
    _tighten_tasks(schemas)
    _tighten_token(schemas["TokenRequest"]["properties"])
    schemas |= _by_type("NewJob", "Job", job_fields, with_rules=True)
    schemas |= _by_type("PreviewOf", "Preview", preview, with_rules=False)
    schemas["JobChange"] = {
        "type": "object",
        "description": "Each field sent takes the place of the former one, whole; null sets the "
        "default.",
        "properties": job_fields["properties"],
        "additionalProperties": False,
    }
    schemas["Batch"]["properties"]["jobs"]["items"] = ref("NewJob")
    return dict(sorted(schemas.items()))


def _plain(schema: Any) -> Any:
    """Without what pydantic adds for itself, and names as the document has them."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {}
    for name, value in schema.items():
        if name == "properties":  # a field may be called title
            kept[name] = {field: _plain(inner) for field, inner in value.items()}
        elif name == "$ref":
            kept[name] = _renamed(value)
        elif name == "mapping":
            kept[name] = {kind: _renamed(where) for kind, where in value.items()}
        elif name not in ("title", "default"):
            kept[name] = _plain(value)
    return _nullable(kept)


def _described(schema: Schema, words: Mapping[str, str]) -> Schema:
    """Return a model's schema with what its own fields mean: a name may mean something else."""
    fields: Schema = schema.get("properties", {})
    for name in words.keys() & fields.keys():
        fields[name] = {"description": words[name], **fields[name]}
    return schema


def _renamed(where: str) -> str:
    name = where.removeprefix(REF)
    return REF + _SCHEMA_NAMES.get(name, name)


def _nullable(schema: Schema) -> Schema:
    """The shorter of two ways to say that a plain value may be null."""
    either = schema.get("anyOf")
    if not either or len(either) != 2 or either[1] != {"type": "null"}:
        return schema
    first = either[0]
    if not isinstance(first.get("type"), str) or "enum" in first or "const" in first:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**first, "type": [first["type"], "null"], **rest}


def _say_formats(schema: Schema) -> None:
    fields = schema.get("properties", {})
    for name in _FORMATS.keys() & fields.keys():
        fields[name] = _formatted(fields[name], _FORMATS[name])


def _formatted(schema: Schema, what: str) -> Schema:
    """The format stands beside a string alone: no tool may take null for a wrong one."""
    text = {"type": "string", "format": what}
    rest = {name: value for name, value in schema.items() if name != "type"}
    if schema["type"] == "string":
        return {**text, **rest}
    return {"anyOf": [text, {"type": "null"}], **rest}


def _tighten(fields: Schema) -> None:
    """What the checks of meaning ask, as far as a schema can say it."""
    fields["name"]["pattern"] = _NO_CONTROL
    fields["exclude"]["items"] = {"type": "string", "format": "date"}
    fields["tags"]["propertyNames"] = {
        "minLength": 1,
        "maxLength": job_rules.MAX_TAG_KEY_CHARACTERS,
        "pattern": "^[^:]*$",
    }
    fields["tags"]["additionalProperties"] = {
        "type": "string",
        "maxLength": job_rules.MAX_TAG_VALUE_CHARACTERS,
    }
    for name, value in DEFAULTS.items():
        if value is not None:
            fields[name]["description"] += f" Default: `{json.dumps(value)}`."


def _tighten_tasks(schemas: Schema) -> None:
    headers = schemas["HttpTask"]["properties"]["headers"]
    headers["propertyNames"] = {"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}
    for task in ("ScriptTask", "ContainerTask"):
        env = schemas[task]["properties"]["env"]
        env["propertyNames"] = {"minLength": 1, "pattern": "^(?!PUNCTUAL_)[^=]*$"}
    script = schemas["ScriptTask"]
    script["properties"]["code"]["maxLength"] = task_fields.MAX_CODE_BYTES
    script["description"] = "Runs code in a sandbox: either `code`, or what `artifact_id` names."
    # No oneOf: of a schema with fields and alternatives, generators keep the alternatives alone.
    code = _says("code", {"type": "string"})
    artifact = _says("artifact_id", {"type": "string"})
    script["allOf"] = [
        {"if": code, "then": {"properties": {"artifact_id": {"type": "null"}}}, "else": artifact}
    ]


def _tighten_token(fields: Schema) -> None:
    fields["name"]["pattern"] = _NO_CONTROL


def _by_type(name: str, suffix: str, fields: Schema, with_rules: bool) -> Schema:
    """One schema a schedule type, with the fields that it knows, and the choice between them."""
    made: Schema = {}
    for kind in _SCHEDULE_TYPES:
        made[kind.capitalize() + suffix] = _of_type(kind, fields, with_rules)
    names = dict(zip(_SCHEDULE_TYPES, made, strict=True))
    made[name] = {
        "oneOf": [ref(one) for one in names.values()],
        "discriminator": {
            "propertyName": "schedule_type",
            "mapping": {kind: REF + one for kind, one in names.items()},
        },
    }
    return made


def _of_type(kind: str, fields: Schema, with_rules: bool) -> Schema:
    """Return the schema of one type.

    The fields of other types may be null. They are not among the properties: generated clients
    would offer them, and openapi-fetch takes a field that is only null for one that is read-only.
    """
    known: Schema = {}
    foreign: Schema = {}
    for name, schema in fields["properties"].items():
        if name == "schedule_type":
            known[name] = {"const": kind, "type": "string"}
        elif kind in TYPES_OF_FIELD.get(name, (kind,)):
            known[name] = schema
        elif name == "exclude":
            foreign[name] = {**schema, "maxItems": 0}
        else:
            foreign[name] = {"type": "null"}
    required = list(fields["required"])
    needed = REQUIRED_FIELDS.get(kind)
    if needed is not None:
        required.append(needed)
        known[needed] = _not_null(known[needed])
    made = {name: value for name, value in fields.items() if name != "additionalProperties"}
    made |= {
        "properties": known,
        "required": required,
        "dependentSchemas": {"schedule_type": {"properties": foreign}},
        "unevaluatedProperties": False,
    }
    if with_rules:
        made["allOf"] = _rules(kind)
    return made


def _not_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        return {**schema["anyOf"][0], **rest}
    kinds = [kind for kind in schema["type"] if kind != "null"]
    return {**schema, "type": kinds[0]}


def _rules(kind: str) -> list[Schema]:
    """What two fields mean together."""
    rules = [
        {
            "if": _says("delivery", {"const": "AT_MOST_ONCE"}),
            "then": {"properties": {"max_retries": {"enum": [0, None]}}},
        },
        {
            "if": _says("timeout_seconds", {"type": "integer", "exclusiveMinimum": 900}),
            "then": _says("task", _says("type", {"enum": _LONG_TASK_TYPES})),
        },
    ]
    if kind == "INTERVAL":
        rules.append(
            {
                "if": _says("interval_from", {"const": "COMPLETED"}),
                "then": {"properties": {"max_concurrency": {"enum": [1, None]}}},
            }
        )
    return rules


def _says(name: str, what: Schema) -> Schema:
    return {"properties": {name: what}, "required": [name]}
