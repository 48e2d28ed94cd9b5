"""Convert the outcome of a failed call to an exception."""

from collections.abc import Mapping
from typing import Any

import msgspec

from punctual.client.calls.retrying import retry_after
from punctual.client.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    NameTaken,
    NotFound,
    PreconditionFailed,
    Problem,
    PunctualError,
    RateLimited,
    Refused,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from punctual.client.wire import Answer, Failure, Outcome, Request

_ERRORS_BY_STATUS: Mapping[int, type[PunctualError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    422: Invalid,
    429: RateLimited,
    500: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_ERRORS_BY_CODE: Mapping[str, type[PunctualError]] = {"NAME_TAKEN": NameTaken}
_UNCERTAIN_ADVICE = (
    "The call may have taken effect. Check before you repeat it, or repeat it with "
    "the same idempotency_key."
)


def error_of_outcome(
    root: str, request: Request, outcome: Outcome, uncertain: bool, attempts: int
) -> PunctualError:
    """Return the exception of a call from the outcome of its last attempt."""
    attempts_text = f" after {attempts} attempts" if attempts > 1 else ""
    key = dict(request.headers).get("idempotency-key")
    if isinstance(outcome, Failure):
        text = f"{request.method} {request.url(root)}: {outcome.text}{attempts_text}."
        if uncertain:
            text = f"{text} {_UNCERTAIN_ADVICE}"
        return Unavailable(text, uncertain=uncertain, idempotency_key=key)
    problem = read_problem(outcome)
    return error_of_problem(
        problem,
        uncertain=uncertain,
        retry_after=retry_after(outcome),
        idempotency_key=key,
        attempts_text=attempts_text,
    )


def error_of_problem(
    problem: Problem,
    *,
    uncertain: bool = False,
    retry_after: float | None = None,
    idempotency_key: str | None = None,
    attempts_text: str = "",
) -> PunctualError:
    error_class = _ERRORS_BY_CODE.get(problem.code) or _ERRORS_BY_STATUS.get(
        problem.status, Refused
    )
    detail = problem.detail.rstrip(".")
    sentences = [
        f"{detail}{attempts_text}"
        if detail.endswith("?") and not attempts_text
        else f"{detail}{attempts_text}."
    ]
    if issubclass(error_class, Refused) and error_class.advice:
        sentences.append(error_class.advice)
    if error_class is RateLimited:
        retry_text = "later" if retry_after is None else f"in {retry_after:g} s"
        sentences.append(f"Retry {retry_text}.")
    if uncertain:
        sentences.append(_UNCERTAIN_ADVICE)
    if problem.request_id and problem.status >= 500:
        sentences.append(f"The server's log has request {problem.request_id}.")
    return error_class(
        " ".join(sentences),
        problem=problem,
        uncertain=uncertain,
        retry_after=retry_after,
        idempotency_key=idempotency_key,
    )


def read_problem(answer: Answer) -> Problem:
    """Return the problem of an answer. The answer of a gateway may contain only a status."""
    try:
        value = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        value = None
    location = answer.headers.get("location")
    if 300 <= answer.status < 400 and location:
        value = {
            "detail": f"The server redirects to {location}; use this as the address of the API"
        }
    return parse_problem(value, answer.status, answer.headers.get("x-request-id"))


def parse_problem(value: Any, status: int, request_id: str | None = None) -> Problem:
    document = value if isinstance(value, dict) else {}
    title = str(document.get("title") or document.get("message") or f"status {status}")
    errors = document.get("errors")
    return Problem(
        status=status,
        code=str(document.get("code") or f"HTTP_{status}"),
        title=title,
        detail=str(document.get("detail") or f"The server answered {status}: {title}"),
        request_id=document.get("request_id") or request_id,
        errors=tuple(
            FieldError(str(entry.get("field")), str(entry.get("message")))
            for entry in (errors if isinstance(errors, list) else ())
            if isinstance(entry, dict)
        ),
        raw=document,
    )
