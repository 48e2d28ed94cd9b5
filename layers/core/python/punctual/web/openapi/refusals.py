"""How calls are refused, as the document tells it."""

from collections.abc import Collection
from typing import Any

from punctual.web.http.problems import PROBLEM_JSON
from punctual.web.openapi.operation import Operation

Schema = dict[str, Any]

_RETRY_AFTER = "Retry-After"
RESPONSE_HEADERS: dict[str, Schema] = {
    "ETag": {
        "description": "The job's version in quotes, or the document's mark.",
        "schema": {"type": "string", "pattern": '^"[^"]+"$'},
    },
    "Location": {
        "description": "Where it is: a path from the root, or a URL.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    _RETRY_AFTER: {
        "description": "Seconds to wait before another try.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Allow": {"description": "What this address takes.", "schema": {"type": "string"}},
    "WWW-Authenticate": {
        "description": "How to say who calls.",
        "schema": {"type": "string", "pattern": "^Bearer"},
    },
    "X-Request-Id": {
        "description": "Names this call in Punctual's log.",
        "schema": {"type": "string"},
    },
    "X-Next-Offset": {
        "description": "Where the next piece of the log begins.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "X-Output-Truncated": {
        "description": "Whether the output was longer than what can be read of it.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Content-Disposition": {
        "description": "An attachment, named after the run.",
        "schema": {"type": "string"},
    },
}

# Status: name, what it means, headers.
_ERRORS: dict[int, tuple[str, str, tuple[str, ...]]] = {
    400: ("BadRequest", "The body is not a JSON object, or a header is broken.", ()),
    401: ("Unauthenticated", "There is no token, or none that is valid.", ("WWW-Authenticate",)),
    403: ("Forbidden", "The caller's role may not do this.", ()),
    404: ("NotFound", "There is nothing here, or it is another tenant's.", ()),
    405: ("MethodNotAllowed", "This address does not take this method.", ("Allow",)),
    406: ("NotAcceptable", "Accept does not allow what this call answers.", ()),
    408: ("RequestTimeout", "The head did not arrive within 10 s, or the body within 30 s.", ()),
    409: ("Conflict", "The state does not allow it.", ()),
    412: ("PreconditionFailed", "If-Match names another version.", ()),
    413: ("TooLarge", "The body is longer than 512 KiB, a batch than 5 MiB.", ()),
    414: ("AddressTooLong", "The address is longer than 8 KiB.", ()),
    415: ("UnsupportedMediaType", "A body is sent as application/json, without encoding.", ()),
    421: ("Misdirected", "A local node was called by a name that is not loopback.", ()),
    422: (
        "Invalid",
        "`errors` names every wrong field at once. The code `TOO_MUCH_WORK` has none: the answer "
        "takes over 2 s of processor time, so ask for a shorter range or for one job.",
        (),
    ),
    429: ("LimitExceeded", "The tenant's limit or quota is used up.", (_RETRY_AFTER,)),
    431: ("HeadersTooLarge", "The head is longer than 64 KiB, or has more than 100 headers.", ()),
    503: (
        "Unavailable",
        "Nothing was done, or only a part of a batch: try again, with the same `Idempotency-Key`.",
        (_RETRY_AFTER,),
    ),
}
_COMMON_STATUSES = (400, 403, 408, 413, 414, 415, 421, 422, 429, 431, 503)


def response_components() -> Schema:
    """Each refusal once, for the operations to name."""
    return {name: _response(text, headers) for name, text, headers in _ERRORS.values()}


def error_responses(operation: Operation, public: bool, shown: Collection[int]) -> Schema:
    """The refusals that an operation may answer; those of `shown` written out, for examples."""
    statuses = {*_COMMON_STATUSES, *operation.notes} - operation.answers.keys()
    if not public:
        statuses.add(401)
    if any(one.place == "path" for one in operation.parameters):
        statuses.add(404)
    if not any(answer.content == "*/*" for answer in operation.answers.values()):
        statuses.add(406)
    return {str(status): _named(status, operation, status in shown) for status in sorted(statuses)}


def _named(status: int, operation: Operation, whole: bool) -> Schema:
    name, general, headers = _ERRORS[status]
    text = operation.notes.get(status)
    if text is None and not whole:
        return {"$ref": f"#/components/responses/{name}"}
    return _response(text or general, headers)


def _response(text: str, headers: tuple[str, ...]) -> Schema:
    return {
        "description": text,
        "headers": named_headers(headers),
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def named_headers(names: tuple[str, ...]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*names, "X-Request-Id")}


def header_components() -> Schema:
    return {name: {**what, "required": True} for name, what in RESPONSE_HEADERS.items()}


ERROR_NAMES = {status: name for status, (name, _, _) in _ERRORS.items()}
