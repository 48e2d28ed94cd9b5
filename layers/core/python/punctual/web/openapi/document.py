"""Build the OpenAPI 3.1 document of all calls, from the models that check requests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from punctual.settings import PRODUCT_VERSION
from punctual.web.contract import API_CALLS, ApiCall
from punctual.web.http.problems import PROBLEM_JSON
from punctual.web.models.artifact import ArtifactFields
from punctual.web.models.claims import ClaimFinishes, ClaimRenewals, UploadFields
from punctual.web.models.failure import AcknowledgeFields
from punctual.web.models.secret import SecretFields
from punctual.web.models.token import TokenFields
from punctual.web.openapi import answers
from punctual.web.openapi.bulk.answers import BulkPreview, OperationAnswer, OperationPage
from punctual.web.openapi.change_operations import CHANGE_MODELS
from punctual.web.openapi.error_responses import (
    error_responses,
    header_components,
    header_refs,
    response_components,
)
from punctual.web.openapi.job_versions import JOB_VERSION_MODELS
from punctual.web.openapi.operation import Operation, Parameter, Response, Schema
from punctual.web.openapi.operations import OPERATIONS, TAGS
from punctual.web.openapi.overview.answers import FailurePage, Overview
from punctual.web.openapi.schedules.answers import Forecast, ScheduleDiff
from punctual.web.openapi.schemas import ref, schema_components
from punctual.web.routing import ANY_MEDIA_TYPE

API_DESCRIPTION = (
    "Punctual runs jobs on time. A call sends `Authorization: Bearer <token>`; a local node of "
    "`make run` needs no token from its own user. Errors are problem documents (RFC 9457), and "
    "`errors` names all wrong fields. An address that answers GET also answers HEAD and OPTIONS. "
    "A method that an address does not allow is a 405 with `Allow`. An unknown query parameter is "
    "a 422; only `/openapi.json` and the `/health` addresses ignore it. Only the calls that name "
    "an `Idempotency-Key` use it. This document is the whole contract: a field that an "
    "installation does not offer yet is a 422."
)
_RESPONSE_MODELS: tuple[type[BaseModel], ...] = (
    answers.Job,
    answers.JobPage,
    answers.JobStatusAnswer,
    answers.Run,
    answers.RunPage,
    answers.BatchResults,
    answers.Backfilled,
    answers.BackfillPreview,
    answers.Preview,
    Forecast,
    ScheduleDiff,
    BulkPreview,
    OperationAnswer,
    OperationPage,
    answers.UpcomingPage,
    answers.Explanation,
    answers.Stats,
    answers.Health,
    answers.Probe,
    answers.Problem,
    answers.Whoami,
    answers.Token,
    answers.NewToken,
    answers.WebhookSecret,
    answers.TokenPage,
    answers.Secret,
    answers.SecretList,
    answers.AuditPage,
    answers.RenewalResults,
    answers.FinishResults,
    answers.UploadLink,
    answers.Artifact,
    answers.ArtifactUpload,
    answers.UsedArtifact,
    answers.ArtifactPage,
    *CHANGE_MODELS,
    *JOB_VERSION_MODELS,
    FailurePage,
    Overview,
)
_REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    TokenFields,
    SecretFields,
    ArtifactFields,
    ClaimRenewals,
    ClaimFinishes,
    UploadFields,
    AcknowledgeFields,
)
EXAMPLES_FILE = Path(__file__).with_name("examples.json")


def build_document() -> Schema:
    examples = recorded_examples()
    paths: Schema = {}
    for call in sorted(API_CALLS, key=lambda call: call.path):
        operation = OPERATIONS[f"{call.method} {call.path}"]
        schema = _operation(call, operation, examples.get(operation.id, {}))
        paths.setdefault(call.path, {})[call.method.lower()] = schema
    schemas = schema_components(_RESPONSE_MODELS, _REQUEST_MODELS)
    schemas["OpenApi"] = {"type": "object", "required": ["openapi", "info", "paths"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Punctual", "version": PRODUCT_VERSION, "description": API_DESCRIPTION},
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "servers": [{"url": "/v1", "description": "The stage, or the local node."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": response_components(),
            "headers": header_components(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token, or a JWT of the installation's issuer.",
                }
            },
        },
    }


def recorded_examples() -> Mapping[str, Any]:
    """Return recorded calls and their answers, by operation and name."""
    examples: Mapping[str, Any] = json.loads(EXAMPLES_FILE.read_text())
    return examples


def _operation(call: ApiCall, operation: Operation, examples: Mapping[str, Any]) -> Schema:
    schema: Schema = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": " ".join(filter(None, (operation.text, _role_text(call)))),
    }
    if operation.parameters:
        schema["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        schema["requestBody"] = _body(operation, examples)
    responses = {
        str(status): _response(response, _answer_examples(examples, status))
        for status, response in operation.responses.items()
    }
    example_statuses = {example["status"] for example in examples.values()}
    errors = error_responses(operation, call.is_public, example_statuses)
    for status, response in errors.items():
        if answer_examples := _answer_examples(examples, int(status)):
            response["content"][PROBLEM_JSON]["examples"] = answer_examples
    schema["responses"] = dict(sorted({**responses, **errors}.items()))
    if call.is_public:
        schema["security"] = []
    return schema


def _role_text(call: ApiCall) -> str:
    return "Needs no token." if call.is_public else f"Needs the role {call.role.label}."


def _parameter(parameter: Parameter) -> Schema:
    schema = parameter.schema
    return {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.required,
        "description": parameter.text,
        "schema": {"type": "array", "items": schema} if parameter.is_repeatable else schema,
    }


def _body(operation: Operation, examples: Mapping[str, Any]) -> Schema:
    content: Schema = {"schema": ref(operation.body or "")}
    body_examples = {
        name: {"summary": example["target"], "value": example["body"]}
        for name, example in examples.items()
        if "body" in example and example["status"] != 422
    }
    if body_examples:
        content["examples"] = body_examples
    return {"required": operation.is_body_required, "content": {"application/json": content}}


def _answer_examples(examples: Mapping[str, Any], status: int) -> Schema:
    """Return the recorded answers with this status, by name."""
    return {
        name: {"summary": example["target"], "value": example["answer"]}
        for name, example in examples.items()
        if example["status"] == status
    }


def _response(response: Response, examples: Schema) -> Schema:
    schema: Schema = {"description": response.text, "headers": header_refs(response.headers)}
    if response.content:
        schema["content"] = _content(response, examples)
    if response.links:
        schema["links"] = {
            name: {"operationId": link.operation, "parameters": dict(link.parameters)}
            for name, link in response.links.items()
        }
    return schema


def _content(response: Response, examples: Schema) -> Schema:
    """Return the content by media type. Generators use the first type and ignore `*/*`."""
    content: Schema = {
        "schema": {"type": "string"} if response.schema is None else ref(response.schema)
    }
    if examples:
        content["examples"] = examples
    if response.content != ANY_MEDIA_TYPE:
        return {response.content: content}
    binary = {"type": "string", "format": "binary"}
    return {
        "application/octet-stream": {**content, "schema": binary},
        ANY_MEDIA_TYPE: {"schema": binary},
    }
