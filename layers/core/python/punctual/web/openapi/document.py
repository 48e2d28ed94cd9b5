"""The OpenAPI 3.1 document: every call of the contract, from the models that check requests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from punctual.settings import VERSION
from punctual.web.contract import API_CALLS, ApiCall
from punctual.web.http.problems import PROBLEM_JSON
from punctual.web.models.token import TokenFields
from punctual.web.openapi import answers, answers_access, refusals
from punctual.web.openapi.nouns_access import ACCESS_OPERATIONS
from punctual.web.openapi.nouns_jobs import JOB_OPERATIONS
from punctual.web.openapi.nouns_runs import (
    INSTALLATION_OPERATIONS,
    RUN_OPERATIONS,
    SCHEDULE_OPERATIONS,
)
from punctual.web.openapi.operation import Operation, Parameter, Response
from punctual.web.openapi.schemas import ref, schema_components
from punctual.web.routing import ANY_TYPE

Schema = dict[str, Any]

TAGS = {
    "Jobs": "What is to run, when, and how.",
    "Runs": "What ran, runs, or waits to.",
    "Schedules": "When things come.",
    "Access": "Who calls, and who changed what.",
    "Installation": "How Punctual itself does.",
}
API_DESCRIPTION = (
    "Runs jobs at their time. Calls send `Authorization: Bearer <token>`; a local node of `make "
    "run` takes calls of its own user without one. Refusals are problem documents (RFC 9457) whose "
    "`errors` name every wrong field at once. Every address that answers GET also answers HEAD "
    "and OPTIONS; another method than those named is 405, with `Allow`. A query parameter that a "
    "call does not name is 422; /openapi.json and what begins with /health pass over it. "
    "An `Idempotency-Key` is honoured by the calls that name it, and by no other. The document is "
    "the whole contract: what "
    "an installation does not have yet is 422 on its field."
)
_RUN_PATH = "/jobs/{job_id}/runs/{run_id}"
_OPERATIONS = {
    one.id: one
    for one in (
        *JOB_OPERATIONS,
        *RUN_OPERATIONS,
        *SCHEDULE_OPERATIONS,
        *ACCESS_OPERATIONS,
        *INSTALLATION_OPERATIONS,
    )
}
OPERATION_IDS = {
    ("POST", "/jobs"): "createJob",
    ("POST", "/jobs/batch"): "createJobs",
    ("GET", "/jobs"): "listJobs",
    ("GET", "/jobs/{job_id}"): "getJob",
    ("PUT", "/jobs/{job_id}"): "replaceJob",
    ("PATCH", "/jobs/{job_id}"): "changeJob",
    ("DELETE", "/jobs/{job_id}"): "cancelJob",
    ("POST", "/jobs/{job_id}/pause"): "pauseJob",
    ("POST", "/jobs/{job_id}/resume"): "resumeJob",
    ("GET", "/jobs/{job_id}/status"): "getJobStatus",
    ("GET", "/jobs/{job_id}/explain"): "explainJob",
    ("POST", "/jobs/{job_id}/runNow"): "runJobNow",
    ("POST", "/jobs/{job_id}/backfill"): "backfillJob",
    ("GET", "/jobs/{job_id}/runs"): "listRunsOfJob",
    ("GET", "/runs"): "listRuns",
    ("GET", _RUN_PATH): "getRun",
    ("POST", f"{_RUN_PATH}/cancel"): "cancelRun",
    ("POST", f"{_RUN_PATH}/retry"): "retryRun",
    ("GET", f"{_RUN_PATH}/output"): "getRunOutput",
    ("GET", f"{_RUN_PATH}/logs"): "getRunLogs",
    ("POST", "/schedules/preview"): "previewSchedule",
    ("GET", "/schedules/upcoming"): "listUpcoming",
    ("GET", "/whoami"): "whoami",
    ("POST", "/tokens"): "createToken",
    ("GET", "/tokens"): "listTokens",
    ("GET", "/tokens/{token_id}"): "getToken",
    ("DELETE", "/tokens/{token_id}"): "revokeToken",
    ("GET", "/webhook-secret"): "getWebhookSecret",
    ("GET", "/audit"): "listAudit",
    ("GET", "/stats"): "getStats",
    ("GET", "/health"): "getHealth",
    ("GET", "/health/live"): "getLiveness",
    ("GET", "/health/ready"): "getReadiness",
    ("GET", "/openapi.json"): "getOpenApi",
}
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
    answers.UpcomingPage,
    answers.Explanation,
    answers.Stats,
    answers.Health,
    answers.Probe,
    answers.Problem,
    answers_access.Whoami,
    answers_access.Token,
    answers_access.NewToken,
    answers_access.WebhookSecret,
    answers_access.TokenPage,
    answers_access.AuditPage,
)
EXAMPLES = Path(__file__).with_name("examples.json")


def build_document() -> Schema:
    """The whole document; of what is not declared as a call it says nothing."""
    examples = recorded_examples()
    paths: Schema = {}
    for call in sorted(API_CALLS, key=lambda one: one.path):
        operation = _OPERATIONS[OPERATION_IDS[call.method, call.path]]
        made = _operation(call, operation, examples.get(operation.id, {}))
        paths.setdefault(call.path, {})[call.method.lower()] = made
    schemas = schema_components(_RESPONSE_MODELS, (TokenFields,))
    schemas["OpenApi"] = {"type": "object", "required": ["openapi", "info", "paths"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Punctual", "version": VERSION, "description": API_DESCRIPTION},
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "servers": [{"url": "/v1", "description": "The stage, or the local node."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": refusals.response_components(),
            "headers": refusals.header_components(),
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
    """Calls as the tests send them, and what was answered, by operation."""
    found: Mapping[str, Any] = json.loads(EXAMPLES.read_text())
    return found


def _operation(call: ApiCall, operation: Operation, examples: Mapping[str, Any]) -> Schema:
    made: Schema = {
        "operationId": operation.id,
        "tags": [operation.noun],
        "summary": operation.summary,
        "description": " ".join(filter(None, (operation.text, _needs(call)))),
    }
    if operation.parameters:
        made["parameters"] = [_parameter(one) for one in operation.parameters]
    if operation.body is not None:
        made["requestBody"] = _body(operation, examples)
    own = {
        str(status): _answer(answer, _shown(examples, status))
        for status, answer in operation.answers.items()
    }
    refused = refusals.error_responses(
        operation, call.is_public, {one["status"] for one in examples.values()}
    )
    for status, answer in refused.items():
        if shown := _shown(examples, int(status)):
            answer["content"][PROBLEM_JSON]["examples"] = shown
    made["responses"] = dict(sorted({**own, **refused}.items()))
    if call.is_public:
        made["security"] = []
    return made


def _needs(call: ApiCall) -> str:
    if call.is_public:
        return "Needs no token."
    return f"Needs the role {call.role.word}."


def _parameter(one: Parameter) -> Schema:
    schema = {"type": "array", "items": one.schema} if one.many else one.schema
    return {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.text,
        "schema": schema,
    }


def _body(operation: Operation, examples: Mapping[str, Any]) -> Schema:
    content: Schema = {"schema": ref(operation.body or "")}
    sent = {
        name: {"summary": one["target"], "value": one["body"]}
        for name, one in examples.items()
        if "body" in one and one["status"] != 422
    }
    if sent:
        content["examples"] = sent
    return {"required": operation.must, "content": {"application/json": content}}


def _shown(examples: Mapping[str, Any], status: int) -> Schema:
    """What was answered with this status, by the examples' names."""
    return {
        name: {"summary": one["target"], "value": one["answer"]}
        for name, one in examples.items()
        if one["status"] == status
    }


def _content(answer: Response, examples: Schema) -> Schema:
    """Return the answer by media type. Generators read the first one, and none reads `*/*`."""
    content: Schema = {
        "schema": {"type": "string"} if answer.schema is None else ref(answer.schema)
    }
    if examples:
        content["examples"] = examples
    if answer.content != ANY_TYPE:
        return {answer.content: content}
    bytes_ = {**content, "schema": {"type": "string", "format": "binary"}}
    return {"application/octet-stream": bytes_, ANY_TYPE: {"schema": bytes_["schema"]}}


def _answer(answer: Response, examples: Schema) -> Schema:
    made: Schema = {
        "description": answer.text,
        "headers": refusals.named_headers(answer.headers),
    }
    if answer.content:
        made["content"] = _content(answer, examples)
    if answer.links:
        made["links"] = {
            name: {"operationId": link.operation, "parameters": dict(link.parameters)}
            for name, link in answer.links.items()
        }
    return made
