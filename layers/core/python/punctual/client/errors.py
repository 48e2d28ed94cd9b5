"""The exceptions of the client. Each message names the remedy."""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

if TYPE_CHECKING:
    from punctual.client.run import Run


class FieldError(NamedTuple):
    """One invalid field: its dotted path as sent, and how to correct it."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True):
    """The error that the server answered (RFC 9457), or that its list of jobs showed."""

    status: int
    code: str
    title: str
    detail: str
    request_id: str | None = None
    errors: tuple[FieldError, ...] = ()
    raw: dict[str, Any] = msgspec.field(default_factory=dict)


class PunctualError(Exception):
    """The base class of all exceptions of this client."""

    def __init__(
        self,
        message: str,
        *,
        problem: Problem | None = None,
        uncertain: bool = False,
        retry_after: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.problem = problem
        # True if the server may have carried out the call, or an attempt of it.
        self.uncertain = uncertain
        self.retry_after = retry_after  # seconds
        # The key of the call. A repeated call with this key has no further effect.
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> int | None:
        """The HTTP status, or None without an answer."""
        return None if self.problem is None else self.problem.status

    @property
    def code(self) -> str | None:
        return None if self.problem is None else self.problem.code

    @property
    def request_id(self) -> str | None:
        return None if self.problem is None else self.problem.request_id

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """All invalid fields, or an empty tuple."""
        return () if self.problem is None else self.problem.errors


class BadWebhook(PunctualError):
    """The webhook is not signed by Punctual, or its timestamp is not recent. Ignore it."""


class Misuse(PunctualError, ValueError):
    """An argument of the call is invalid. The client sent nothing."""


class Refused(PunctualError):
    """The server rejected the call. A retry would be rejected too."""

    advice: ClassVar[str] = ""


class Unauthenticated(Refused):
    advice = "Set PUNCTUAL_TOKEN or token= to a valid token."


class Forbidden(Refused):
    advice = "Use a token with a higher role. whoami() shows the role of this token."


class NotFound(Refused):
    advice = "Check the id, the address of the API, and the tenant of the token."


class Conflict(Refused):
    """The state of the job or run does not allow the call."""


class NameTaken(Conflict):
    """Another recurring job has the name. `job_id` is that job."""

    @property
    def job_id(self) -> str | None:
        return None if self.problem is None else self.problem.raw.get("job_id")


class AmbiguousName(Conflict):
    """Several jobs have the name. `job_ids` are the first of them: use one of these ids."""

    @property
    def job_ids(self) -> tuple[str, ...]:
        return () if self.problem is None else tuple(self.problem.raw.get("job_ids", ()))


class PreconditionFailed(Refused):
    advice = "Repeat the change with the present version."


class Invalid(Refused):
    """One or more fields are invalid. `errors` lists all of them."""


class TooLarge(Refused):
    advice = "Send at most 512 KiB, 5 MiB as a batch, or 256 KiB as a payload."


class RateLimited(PunctualError):
    """The tenant exceeded a limit. `retry_after` is the time to wait, in seconds."""


class Unavailable(PunctualError):
    """No answer arrived, or an answer that a retry may cure.

    If `uncertain` is true, the server may have carried out the call.
    """


class Unexpected(PunctualError):
    """The answer does not follow the contract of the API."""


class _RunError(PunctualError):
    def __init__(self, message: str, run: "Run") -> None:
        super().__init__(message)
        self.args = (message, run)  # pickle passes these to the constructor
        self.run = run


class WaitTimeout(_RunError):
    """A run did not end in time. `run` is its last known state."""


class RunFailed(_RunError):
    """A run ended without success, or has not ended yet."""
