"""Convert the outcome of a failed call to an exception."""

from collections.abc import Mapping
from typing import Any

import msgspec

from punctual.client.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
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
from punctual.client.retrying import retry_after
from punctual.client.wire import Answer, Failure, Outcome, Request

_BY_STATUS: Mapping[int, type[PunctualError]] = {
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
_OPEN = (
    "The call may have been carried out all the same: look before you repeat it, or repeat it with "
    "the same idempotency_key."
)


def refusal(
    root: str, request: Request, outcome: Outcome, uncertain: bool, attempts: int
) -> PunctualError:
    """Return the exception of a call from the outcome of its last attempt."""
    tries = f" after {attempts} attempts" if attempts > 1 else ""
    key = dict(request.headers).get("idempotency-key")
    if isinstance(outcome, Failure):
        text = f"{request.method} {request.url(root)}: {outcome.text}{tries}."
        if uncertain:
            text = f"{text} {_OPEN}"
        return Unavailable(text, uncertain=uncertain, idempotency_key=key)
    found = problem_of(outcome)
    return of_problem(
        found,
        uncertain=uncertain,
        retry_after=retry_after(outcome),
        idempotency_key=key,
        tries=tries,
    )


def of_problem(
    problem: Problem,
    *,
    uncertain: bool = False,
    retry_after: float | None = None,
    idempotency_key: str | None = None,
    tries: str = "",
) -> PunctualError:
    kind = _BY_STATUS.get(problem.status, Refused)
    told = problem.detail.rstrip(".")
    sentences = [f"{told}{tries}" if told.endswith("?") and not tries else f"{told}{tries}."]
    if issubclass(kind, Refused) and kind.advice:
        sentences.append(kind.advice)
    if kind is RateLimited:
        when = "later" if retry_after is None else f"in {retry_after:g} s"
        sentences.append(f"Ask again {when}.")
    if uncertain:
        sentences.append(_OPEN)
    if problem.request_id and problem.status >= 500:
        sentences.append(f"Request {problem.request_id} is in the server's log.")
    return kind(
        " ".join(sentences),
        problem=problem,
        uncertain=uncertain,
        retry_after=retry_after,
        idempotency_key=idempotency_key,
    )


def problem_of(answer: Answer) -> Problem:
    """Return the problem of an answer. The answer of a gateway may contain only a status."""
    try:
        value = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        value = None
    where = answer.headers.get("location")
    if 300 <= answer.status < 400 and where:
        value = {"detail": f"The server sends us on to {where}: take that for the API's address"}
    return problem_in(value, answer.status, answer.headers.get("x-request-id"))


def problem_in(value: Any, status: int, request_id: str | None = None) -> Problem:
    given = value if isinstance(value, dict) else {}
    title = str(given.get("title") or given.get("message") or f"status {status}")
    errors = given.get("errors")
    return Problem(
        status=status,
        code=str(given.get("code") or f"HTTP_{status}"),
        title=title,
        detail=str(given.get("detail") or f"The server answered {status}: {title}"),
        request_id=given.get("request_id") or request_id,
        errors=tuple(
            FieldError(str(e.get("field")), str(e.get("message")))
            for e in (errors if isinstance(errors, list) else ())
            if isinstance(e, dict)
        ),
        raw=given,
    )
