"""The error responses and the headers of the document."""

from collections.abc import Collection

from punctual.web.http.problems import PROBLEM_JSON
from punctual.web.openapi.operation import Operation, Schema

_RETRY_AFTER = "Retry-After"
_REQUEST_ID = "X-Request-Id"
RESPONSE_HEADERS: dict[str, Schema] = {
    "ETag": {
        "description": "The quoted version of the job, or a digest of the document.",
        "schema": {"type": "string", "pattern": '^"[^"]+"$'},
    },
    "Location": {
        "description": "The address: a path from the root, or a URL.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    _RETRY_AFTER: {
        "description": "The seconds to wait before the next try.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Allow": {"description": "The methods of this address.", "schema": {"type": "string"}},
    "WWW-Authenticate": {
        "description": "The authentication scheme.",
        "schema": {"type": "string", "pattern": "^Bearer"},
    },
    _REQUEST_ID: {
        "description": "The id of this call in the log of Punctual.",
        "schema": {"type": "string"},
    },
    "X-Next-Offset": {
        "description": "The offset where the next part of the log begins.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "X-Output-Truncated": {
        "description": "`true` if the output was longer than the stored part.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "Content-Disposition": {
        "description": "An attachment with the run id as its name.",
        "schema": {"type": "string"},
    },
}

# Status: name, meaning, headers.
_ERRORS: dict[int, tuple[str, str, tuple[str, ...]]] = {
    400: ("BadRequest", "The body is not a JSON object, or a header is malformed.", ()),
    401: ("Unauthenticated", "The call has no valid token.", ("WWW-Authenticate",)),
    403: ("Forbidden", "The role of the caller is too low for this call.", ()),
    404: ("NotFound", "The address or the id does not exist for this tenant.", ()),
    405: ("MethodNotAllowed", "This address does not allow the method.", ("Allow",)),
    406: ("NotAcceptable", "The Accept header does not allow the type of the answer.", ()),
    408: ("RequestTimeout", "The head took longer than 10 s, or the body longer than 30 s.", ()),
    409: ("Conflict", "The state of the job or run does not allow the call.", ()),
    412: ("PreconditionFailed", "If-Match names another version.", ()),
    413: ("TooLarge", "The body is longer than 512 KiB, or a batch longer than 5 MiB.", ()),
    414: ("AddressTooLong", "The address is longer than 8 KiB.", ()),
    415: (
        "UnsupportedMediaType",
        "The body must be `application/json` without a content encoding.",
        (),
    ),
    421: ("Misdirected", "The Host header of a call to a local node must be a loopback name.", ()),
    422: (
        "Invalid",
        "`errors` names all wrong fields. The code `TOO_MUCH_WORK` has no `errors`: the answer "
        "needs more than 2 s of processor time, so ask for a shorter range or for one job.",
        (),
    ),
    429: ("LimitExceeded", "The tenant is at its limit or quota.", (_RETRY_AFTER,)),
    431: ("HeadersTooLarge", "The head is longer than 64 KiB, or has more than 100 headers.", ()),
    503: (
        "Unavailable",
        "Nothing was done, or only a part of a batch. Try again with the same `Idempotency-Key`.",
        (_RETRY_AFTER,),
    ),
}
_COMMON_STATUSES = (400, 403, 408, 413, 414, 415, 421, 422, 429, 431, 503)
ERROR_NAMES = {status: name for status, (name, _, _) in _ERRORS.items()}


def response_components() -> Schema:
    """Return each error response once. The operations refer to them."""
    return {name: _response(text, headers) for name, text, headers in _ERRORS.values()}


def header_components() -> Schema:
    return {name: {**header, "required": True} for name, header in RESPONSE_HEADERS.items()}


def header_refs(names: tuple[str, ...]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*names, _REQUEST_ID)}


def error_responses(operation: Operation, is_public: bool, inline: Collection[int]) -> Schema:
    """Return the error responses of an operation by status.

    A status in `inline` is written out, because it has an example. Others are references.
    """
    statuses = {*_COMMON_STATUSES, *operation.notes} - operation.responses.keys()
    if not is_public:
        statuses.add(401)
    if any(parameter.location == "path" for parameter in operation.parameters):
        statuses.add(404)
    if not any(response.content == "*/*" for response in operation.responses.values()):
        statuses.add(406)
    return {
        str(status): _response_or_ref(status, operation, status in inline)
        for status in sorted(statuses)
    }


def _response_or_ref(status: int, operation: Operation, is_inline: bool) -> Schema:
    name, general_text, headers = _ERRORS[status]
    text = operation.notes.get(status)
    if text is None and not is_inline:
        return {"$ref": f"#/components/responses/{name}"}
    return _response(text or general_text, headers)


def _response(text: str, headers: tuple[str, ...]) -> Schema:
    return {
        "description": text,
        "headers": header_refs(headers),
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
