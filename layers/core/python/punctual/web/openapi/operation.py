"""The values that describe an operation, and the parameters that several operations share."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Schema = dict[str, Any]
UUID_SCHEMA: Schema = {"type": "string", "format": "uuid"}
TIME_SCHEMA: Schema = {"type": "string", "format": "date-time"}


class Parameter(NamedTuple):
    name: str
    schema: Schema
    text: str
    location: str = "query"
    required: bool = False
    is_repeatable: bool = False  # the parameter may repeat


class Link(NamedTuple):
    """An operation that takes values of an answer as its parameters."""

    operation: str
    parameters: Mapping[str, str]


class Response(NamedTuple):
    text: str
    schema: str | None = None  # the name of a component
    headers: tuple[str, ...] = ()
    links: Mapping[str, Link] = {}
    content: str = "application/json"


class Operation(NamedTuple):
    call: str  # "GET /jobs"
    id: str
    tag: str
    summary: str
    responses: Mapping[int, Response]
    text: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None  # the name of a component
    is_body_required: bool = True
    notes: Mapping[int, str] = {}  # what an error status means here; 409 and 412 need a note


def enum_schema(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def id_parameter(noun: str) -> Parameter:
    return Parameter(f"{noun}_id", UUID_SCHEMA, f"The id of the {noun}.", "path", required=True)


def links_by_id(noun: str, *operations: str) -> Mapping[str, Link]:
    """Return links to operations that take the id of the answer."""
    id_of_body = {f"{noun}_id": f"$response.body#/{noun}_id"}
    return {operation: Link(operation, id_of_body) for operation in operations}


JOB_ID_PARAMETER = id_parameter("job")
RUN_ID_PARAMETER = id_parameter("run")
NOT_OFFERED = {404: "The installation does not offer this call (`NOT_INSTALLED`)."}
FROM_PARAMETER = Parameter("from", TIME_SCHEMA, "The start of the range, inclusive.")
TO_PARAMETER = Parameter("to", TIME_SCHEMA, "The end of the range, exclusive. It is after `from`.")
PAGE_PARAMETERS = (
    Parameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "The maximum length of the page. A page may be shorter.",
    ),
    Parameter(
        "next_token",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
        "The `next_token` of the page before. The filters must be the same.",
    ),
)
NEXT_TOKEN_TEXT = (
    "Send it as the parameter `next_token` to get the next page. It is null on the last page."
)
IDEMPOTENCY_KEY_PARAMETER = Parameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[\\u0020-\\u007e]{1,255}$"},
    "The same key and body give the same answer for 24 h. Another body is a 422.",
    "header",
)
IF_MATCH_PARAMETER = Parameter(
    "If-Match",
    {"type": "string", "pattern": '^(\\*|(W/)?"[^"]*"(\\s*,\\s*(W/)?"[^"]*")*)$'},
    "The ETag that the job must have; another one is a 412. `*` allows any.",
    "header",
)
