"""What the document says of one call, besides what its models say."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Schema = dict[str, Any]
UUID_SCHEMA: Schema = {"type": "string", "format": "uuid"}
TIME_SCHEMA: Schema = {"type": "string", "format": "date-time"}


class Parameter(NamedTuple):
    """`many`: it may be repeated."""

    name: str
    schema: Schema
    text: str
    place: str = "query"
    required: bool = False
    many: bool = False


class Link(NamedTuple):
    """The call that an answer leads to, and where its parameters come from."""

    operation: str
    parameters: Mapping[str, str]


class Response(NamedTuple):
    """`schema` names a component; `content` is what else than JSON it may be."""

    text: str
    schema: str | None = None
    headers: tuple[str, ...] = ()
    links: Mapping[str, Link] = {}
    content: str = "application/json"


class Operation(NamedTuple):
    """`body` names a component, `must` is False where it may be left out."""

    id: str
    noun: str
    summary: str
    answers: Mapping[int, Response]
    text: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None
    must: bool = True
    notes: Mapping[int, str] = {}  # what a refusal means here; 409 and 412 come only where named


def enum_schema(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


JOB_ID_PARAMETER = Parameter("job_id", UUID_SCHEMA, "The job.", "path", required=True)
RUN_ID_PARAMETER = Parameter("run_id", UUID_SCHEMA, "The run.", "path", required=True)
FROM_PARAMETER = Parameter("from", TIME_SCHEMA, "The first moment that counts.")
TO_PARAMETER = Parameter("to", TIME_SCHEMA, "The first moment that no longer counts, after `from`.")
PAGE_PARAMETERS = (
    Parameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "How many a page has at most; it may be short.",
    ),
    Parameter(
        "next_token",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
        "Where to go on: from the answer before, with the same filters.",
    ),
)
IDEMPOTENCY_KEY_PARAMETER = Parameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[\\u0020-\\u007e]{1,255}$"},
    "The same key and body answer the same for 24 h; another body is 422.",
    "header",
)
IF_MATCH_PARAMETER = Parameter(
    "If-Match",
    {"type": "string", "pattern": '^(\\*|(W/)?"[^"]*"(\\s*,\\s*(W/)?"[^"]*")*)$'},
    "The ETag that the job must still have, else 412; `*` takes any.",
    "header",
)
