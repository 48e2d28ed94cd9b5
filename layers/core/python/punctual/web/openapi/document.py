"""The OpenAPI 3.1 document: every call of the contract, from the models that check requests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from punctual.settings import VERSION
from punctual.web.contract import CALLS, Call
from punctual.web.http.problems import PROBLEM_JSON
from punctual.web.models.token import TokenFields
from punctual.web.openapi import answers, answers_access, refusals
from punctual.web.openapi.nouns_access import ACCESS
from punctual.web.openapi.nouns_jobs import JOBS
from punctual.web.openapi.nouns_runs import INSTALLATION, RUNS, SCHEDULES
from punctual.web.openapi.operation import Answer, Operation, Parameter
from punctual.web.openapi.schemas import components, ref
from punctual.web.routing import ANYTHING

Schema = dict[str, Any]

NOUNS = {
    "Jobs": "What is to run, when, and how.",
    "Runs": "What ran, runs, or waits to.",
    "Schedules": "When things come.",
    "Access": "Who calls, and who changed what.",
    "Installation": "How Punctual itself does.",
}
ABOUT = (
    "Runs jobs at their time. Calls send `Authorization: Bearer <token>`; a local node of `make "
    "run` takes calls of its own user without one. Refusals are problem documents (RFC 9457) whose "
    "`errors` name every wrong field at once. Every address that answers GET also answers HEAD "
    "and OPTIONS; another method than those named is 405, with `Allow`. A query parameter that a "
    "call does not name is 422; /openapi.json and what begins with /health pass over it. "
    "An `Idempotency-Key` is honoured by the calls that name it, and by no other. The document is "
    "the whole contract: what "
    "an installation does not have yet is 422 on its field."
)
_RUN = "/jobs/{job_id}/runs/{run_id}"
_OPERATIONS = {one.id: one for one in (*JOBS, *RUNS, *SCHEDULES, *ACCESS, *INSTALLATION)}
ID_OF = {
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
    ("GET", _RUN): "getRun",
    ("POST", f"{_RUN}/cancel"): "cancelRun",
    ("POST", f"{_RUN}/retry"): "retryRun",
    ("GET", f"{_RUN}/output"): "getRunOutput",
    ("GET", f"{_RUN}/logs"): "getRunLogs",
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
_ANSWERED: tuple[type[BaseModel], ...] = (
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


def document() -> Schema:
    """The whole document; of what is not declared as a call it says nothing."""
    examples = recorded()
    paths: Schema = {}
    for call in sorted(CALLS, key=lambda one: one.path):
        operation = _OPERATIONS[ID_OF[call.method, call.path]]
        made = _operation(call, operation, examples.get(operation.id, {}))
        paths.setdefault(call.path, {})[call.method.lower()] = made
    schemas = components(_ANSWERED, (TokenFields,))
    schemas["OpenApi"] = {"type": "object", "required": ["openapi", "info", "paths"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Punctual", "version": VERSION, "description": ABOUT},
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "servers": [{"url": "/v1", "description": "The stage, or the local node."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": text} for name, text in NOUNS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": refusals.responses(),
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


def recorded() -> Mapping[str, Any]:
    """Calls as the tests send them, and what was answered, by operation."""
    found: Mapping[str, Any] = json.loads(EXAMPLES.read_text())
    return found


def _operation(call: Call, operation: Operation, examples: Mapping[str, Any]) -> Schema:
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
    refused = refusals.of(operation, call.public, {one["status"] for one in examples.values()})
    for status, answer in refused.items():
        if shown := _shown(examples, int(status)):
            answer["content"][PROBLEM_JSON]["examples"] = shown
    made["responses"] = dict(sorted({**own, **refused}.items()))
    if call.public:
        made["security"] = []
    return made


def _needs(call: Call) -> str:
    if call.public:
        return "Needs no token."
    return f"Needs the role {call.needs.word}."


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


def _content(answer: Answer, examples: Schema) -> Schema:
    """Return the answer by media type. Generators read the first one, and none reads `*/*`."""
    content: Schema = {
        "schema": {"type": "string"} if answer.schema is None else ref(answer.schema)
    }
    if examples:
        content["examples"] = examples
    if answer.content != ANYTHING:
        return {answer.content: content}
    bytes_ = {**content, "schema": {"type": "string", "format": "binary"}}
    return {"application/octet-stream": bytes_, ANYTHING: {"schema": bytes_["schema"]}}


def _answer(answer: Answer, examples: Schema) -> Schema:
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
