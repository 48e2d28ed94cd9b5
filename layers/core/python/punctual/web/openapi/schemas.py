"""Build the JSON schemas of requests and answers from the models.

A schema allows every request that the routes accept, and may allow more.

No schema has a `default`, because generated clients would send it. `max_retries` 3 with
`delivery` AT_MOST_ONCE would then be an error. A description names the default instead.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from punctual.domain.schedules.cron.expression import MAX_CRON_CHARACTERS
from punctual.domain.task_limits import LONG_TASK_TYPES
from punctual.web.models import job_rules
from punctual.web.models import task as task_fields
from punctual.web.models.bodies import (
    BackfillFields,
    BatchFields,
    NoFields,
    PauseFields,
    PreviewFields,
    ResumeFields,
    RetryRunFields,
    RunNowFields,
)
from punctual.web.models.bulk import BulkFields
from punctual.web.models.defaults import DEFAULTS
from punctual.web.models.job import JobFields
from punctual.web.models.schedule import REQUIRED_FIELDS, ScheduleFields
from punctual.web.models.schedule_diff import ScheduleDiffFields
from punctual.web.models.schedule_types import TYPES_OF_FIELD
from punctual.web.openapi.field_descriptions import FIELD_DESCRIPTIONS
from punctual.web.openapi.operation import Schema

REF = "#/components/schemas/"

_BODIES: tuple[type[BaseModel], ...] = (
    JobFields,
    PreviewFields,
    ScheduleFields,
    ScheduleDiffFields,
    BatchFields,
    NoFields,
    PauseFields,
    ResumeFields,
    RunNowFields,
    RetryRunFields,
    BackfillFields,
    BulkFields,
)
# Generated clients use these names.
_SCHEMA_NAMES = {
    "NoFields": "Nothing",
    "PauseFields": "Pause",
    "ResumeFields": "Resume",
    "RunNowFields": "RunNow",
    "RetryRunFields": "RetryRun",
    "BackfillFields": "Backfill",
    "ScheduleDiffFields": "ScheduleDiffRequest",
    "BatchFields": "Batch",
    "BulkFields": "BulkRequest",
    "TokenFields": "TokenRequest",
    "SecretFields": "SecretRequest",
    "RenewalFields": "ClaimRenewal",
    "FinishFields": "ClaimFinish",
    "ProgressFields": "Progress",
    "UploadFields": "UploadRequest",
    "ArtifactFields": "ArtifactRequest",
    "AcknowledgeFields": "AcknowledgeRequest",
    "JobStatus": "JobState",
    "JobStatusAnswer": "JobStatus",
    "ScheduleKind": "ScheduleType",
}
_SCHEDULE_TYPES = ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL")
_FORMATS = {
    **dict.fromkeys(
        ("schedule_time", "start_time", "end_time", "from", "to", "expires_at", "until"),
        "date-time",
    ),
    "cron_expression": "cron",
    "timezone": "timezone",
}
_FILE_NAME = "^[^/\\u0000-\\u001f\\u007f-\\u009f]*$"
_NO_CONTROL_CHARACTERS = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"
_LONG_TASK_TYPES = list(LONG_TASK_TYPES)


def ref(name: str) -> Schema:
    return {"$ref": REF + name}


def schema_components(
    answers: Iterable[type[BaseModel]], bodies: Iterable[type[BaseModel]]
) -> Schema:
    """Return all schemas by name. `bodies` are request models that this module does not list."""
    requests = [*_BODIES, *bodies]
    _, generated = models_json_schema(
        [(model, "validation") for model in [*requests, *answers]], ref_template=REF + "{model}"
    )
    schemas: Schema = {
        _SCHEMA_NAMES.get(name, name): _with_descriptions(
            _plain(schema), FIELD_DESCRIPTIONS.get(name, {})
        )
        for name, schema in generated["$defs"].items()
    }
    for model in requests:
        _add_formats(schemas[_SCHEMA_NAMES.get(model.__name__, model.__name__)])
    job_fields, preview = schemas.pop("JobFields"), schemas.pop("PreviewFields")
    schedule = schemas.pop("ScheduleFields")
    for fields in (job_fields, preview, schedule):
        fields["properties"]["cron_expression"]["anyOf"][0]["maxLength"] = MAX_CRON_CHARACTERS
    _tighten(job_fields["properties"])
    _tighten_tasks(schemas)
    _tighten_token(schemas["TokenRequest"]["properties"])
    for name in ("Pause", "AcknowledgeRequest", "BulkRequest"):
        schemas[name]["properties"]["note"]["pattern"] = _NO_CONTROL_CHARACTERS
    schemas["ArtifactRequest"]["properties"]["name"]["pattern"] = _FILE_NAME
    schemas |= _by_type("NewJob", "Job", job_fields, with_rules=True)
    schemas |= _by_type("PreviewOf", "Preview", preview, with_rules=False)
    schemas |= _by_type("ScheduleOf", "Schedule", schedule, with_rules=False)
    _add_schedules(schemas["ScheduleDiffRequest"]["properties"])
    schemas["JobChange"] = {
        "type": "object",
        "description": "Each field replaces the old one whole. Null sets the default.",
        "properties": job_fields["properties"],
        "additionalProperties": False,
    }
    schemas["Batch"]["properties"]["jobs"]["items"] = ref("NewJob")
    return dict(sorted(schemas.items()))


def _plain(schema: Any) -> Any:
    """Return the schema without pydantic's titles and defaults, and with the document's names."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: Schema = {}
    for name, value in schema.items():
        if name == "properties":  # a field may be called title
            plain[name] = {field: _plain(inner) for field, inner in value.items()}
        elif name == "$ref":
            plain[name] = _public_name(value)
        elif name == "mapping":
            plain[name] = {kind: _public_name(target) for kind, target in value.items()}
        elif name not in ("title", "default"):
            plain[name] = _plain(value)
    return _nullable(plain)


def _with_descriptions(schema: Schema, descriptions: Mapping[str, str]) -> Schema:
    """Add the descriptions of a model's fields to its schema."""
    fields: Schema = schema.get("properties", {})
    for name in descriptions.keys() & fields.keys():
        fields[name] = {"description": descriptions[name], **fields[name]}
    return schema


def _public_name(target: str) -> str:
    name = target.removeprefix(REF)
    return REF + _SCHEMA_NAMES.get(name, name)


def _nullable(schema: Schema) -> Schema:
    """Return the short form of a schema for a simple value or null."""
    choices = schema.get("anyOf")
    if not choices or len(choices) != 2 or choices[1] != {"type": "null"}:
        return schema
    first = choices[0]
    if not isinstance(first.get("type"), str) or "enum" in first or "const" in first:
        return schema
    other_keywords = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**first, "type": [first["type"], "null"], **other_keywords}


def _add_formats(schema: Schema) -> None:
    fields = schema.get("properties", {})
    for name in _FORMATS.keys() & fields.keys():
        fields[name] = _with_format(fields[name], _FORMATS[name])


def _with_format(schema: Schema, text_format: str) -> Schema:
    """Add a format to the string type only. A tool must not apply it to null."""
    text = {"type": "string", "format": text_format}
    other_keywords = {name: value for name, value in schema.items() if name != "type"}
    if schema["type"] == "string":
        return {**text, **other_keywords}
    return {"anyOf": [text, {"type": "null"}], **other_keywords}


def _tighten(fields: Schema) -> None:
    """Add the rules of the checks that a schema can express."""
    fields["name"]["pattern"] = _NO_CONTROL_CHARACTERS
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
    script["description"] = (
        "Runs `code`, the file that `artifact_id` names, or a program of the node, in a sandbox."
    )
    for name in ("interpreter", "working_directory"):
        script["properties"][name]["pattern"] = "^/[^\\u0000]*$"
    # Not oneOf: generators drop the properties of a schema that has alternatives too.
    code = _has("code", {"type": "string"})
    artifact = _has("artifact_id", {"type": "string"})
    program = _has("interpreter", {"type": "string"})
    script["allOf"] = [
        {
            "if": code,
            "then": {"properties": {"artifact_id": {"type": "null"}}},
            "else": {"anyOf": [artifact, program]},
        }
    ]


def _tighten_token(fields: Schema) -> None:
    fields["name"]["pattern"] = _NO_CONTROL_CHARACTERS


def _add_schedules(fields: Schema) -> None:
    before = [{"type": "string", "format": "uuid"}, ref("ScheduleOf")]
    fields["before"] = {**fields["before"], "anyOf": before}
    fields["after"] = {"description": fields["after"]["description"], **ref("ScheduleOf")}


def _by_type(name: str, suffix: str, fields: Schema, with_rules: bool) -> Schema:
    """Return a schema for each schedule type, and the choice between them."""
    by_type: Schema = {}
    for kind in _SCHEDULE_TYPES:
        by_type[kind.capitalize() + suffix] = _of_type(kind, fields, with_rules)
    names = dict(zip(_SCHEDULE_TYPES, by_type, strict=True))
    by_type[name] = {
        "oneOf": [ref(type_name) for type_name in names.values()],
        "discriminator": {
            "propertyName": "schedule_type",
            "mapping": {kind: REF + type_name for kind, type_name in names.items()},
        },
    }
    return by_type


def _of_type(kind: str, fields: Schema, with_rules: bool) -> Schema:
    """Return the schema of one type.

    Fields of other types may be null. They are not properties, because generated clients would
    offer them, and openapi-fetch treats a field that is always null as read-only.
    """
    properties: Schema = {}
    foreign_properties: Schema = {}
    for name, schema in fields["properties"].items():
        if name == "schedule_type":
            properties[name] = {"const": kind, "type": "string"}
        elif kind in TYPES_OF_FIELD.get(name, (kind,)):
            properties[name] = schema
        elif name == "exclude":
            foreign_properties[name] = {**schema, "maxItems": 0}
        else:
            foreign_properties[name] = {"type": "null"}
    required = list(fields["required"])
    required_name = REQUIRED_FIELDS.get(kind)
    if required_name is not None:
        required.append(required_name)
        properties[required_name] = _not_null(properties[required_name])
    schema = {name: value for name, value in fields.items() if name != "additionalProperties"}
    schema |= {
        "properties": properties,
        "required": required,
        "dependentSchemas": {"schedule_type": {"properties": foreign_properties}},
        "unevaluatedProperties": False,
    }
    if with_rules:
        schema["allOf"] = _rules(kind)
    return schema


def _not_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        other_keywords = {name: value for name, value in schema.items() if name != "anyOf"}
        return {**schema["anyOf"][0], **other_keywords}
    kinds = [kind for kind in schema["type"] if kind != "null"]
    return {**schema, "type": kinds[0]}


def _rules(kind: str) -> list[Schema]:
    """Return the rules for combinations of two fields."""
    rules = [
        {
            "if": _has("delivery", {"const": "AT_MOST_ONCE"}),
            "then": {"properties": {"max_retries": {"enum": [0, None]}}},
        },
        {
            "if": _has("timeout_seconds", {"type": "integer", "exclusiveMinimum": 900}),
            "then": _has("task", _has("type", {"enum": _LONG_TASK_TYPES})),
        },
    ]
    if kind == "INTERVAL":
        rules.append(
            {
                "if": _has("interval_from", {"const": "COMPLETED"}),
                "then": {"properties": {"max_concurrency": {"enum": [1, None]}}},
            }
        )
    return rules


def _has(name: str, schema: Schema) -> Schema:
    return {"properties": {name: schema}, "required": [name]}
