"""Turn errors into problem documents (RFC 9457), by one table from code to status."""

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

from punctual.domain.errors import Invalid, LimitExceeded, NameTaken, PunctualError, Unavailable
from punctual.web.features import NOT_INSTALLED
from punctual.web.http.request import Header, Reply, json_reply

PROBLEM_JSON = "application/problem+json"
DEFAULT_RETRY_AFTER = "1"
CHALLENGE_HEADER = ("www-authenticate", 'Bearer realm="punctual"')

HTTP_STATUSES = {
    "BAD_REQUEST": 400,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "NOT_INSTALLED": 404,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_ACCEPTABLE": 406,
    "REQUEST_TIMEOUT": 408,
    "CONFLICT": 409,
    "NAME_TAKEN": 409,
    "CLAIM_LOST": 409,
    "PRECONDITION_FAILED": 412,
    "TOO_LARGE": 413,
    "URI_TOO_LONG": 414,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "MISDIRECTED": 421,
    "MISROUTED": 421,
    "INVALID": 422,
    "ANSWER_TOO_LONG": 422,
    "TOO_MUCH_WORK": 422,
    "LIMIT_EXCEEDED": 429,
    "HEADERS_TOO_LARGE": 431,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}


# The titles of RFC 9110. Older Python versions have other ones.
_STATUS_TITLES = {413: "Content Too Large", 414: "URI Too Long", 422: "Unprocessable Content"}


class RequestRejected(PunctualError):
    """An error of the HTTP layer, with one of the codes of `HTTP_STATUSES`."""

    def __init__(self, code: str, message: str, *headers: Header) -> None:
        super().__init__(message)
        self.http_code = code
        self.headers = headers


def not_installed(path: str) -> RequestRejected:
    return RequestRejected("NOT_INSTALLED", f"{path} is {NOT_INSTALLED}.")


def error_code(error: PunctualError) -> str:
    return error.http_code if isinstance(error, RequestRejected) else error.code


def problem_body(error: PunctualError, request_id: str) -> dict[str, Any]:
    """Return the problem document of an error."""
    code = error_code(error)
    status = HTTP_STATUSES.get(code, 500)
    body: dict[str, Any] = {
        "type": f"urn:punctual:{code.lower().replace('_', '-')}",
        "title": _title(status),
        "status": status,
        "detail": error.message,
        "code": code,
        "request_id": request_id,
    }
    if isinstance(error, Invalid):
        body["errors"] = [
            {"field": field_error.field, "message": field_error.message}
            for field_error in error.errors
        ]
    if isinstance(error, NameTaken):
        body["job_id"] = error.job_id
    return body


def problem_reply(error: PunctualError, request_id: str) -> Reply:
    body = problem_body(error, request_id)
    reply = json_reply(body["status"], body, *_headers(error))
    return reply._replace(content_type=PROBLEM_JSON)


def internal_error_reply(request_id: str) -> Reply:
    """Return the reply for an unexpected error. It shows nothing of the cause."""
    error = RequestRejected(
        "INTERNAL", "Punctual failed. Its log has the details under this request_id."
    )
    return problem_reply(error, request_id)


def unauthenticated() -> RequestRejected:
    """Return the error for a call without a valid token."""
    text = "Send a valid token: Authorization: Bearer <token>."
    return RequestRejected("UNAUTHENTICATED", text, CHALLENGE_HEADER)


def tokens_unavailable() -> Unavailable:
    """Return the error for a token that cannot be checked now. It may be a valid one."""
    return Unavailable("Tokens cannot be checked at the moment: try again.")


def _headers(error: PunctualError) -> Sequence[Header]:
    if isinstance(error, RequestRejected):
        return error.headers
    if isinstance(error, LimitExceeded):
        return (("retry-after", str(max(1, ceil(error.retry_after_seconds)))),)
    if isinstance(error, Unavailable):
        return (("retry-after", DEFAULT_RETRY_AFTER),)
    return ()


def _title(status: int) -> str:
    return _STATUS_TITLES.get(status) or HTTPStatus(status).phrase
