"""What can go wrong, each with a text that says what to do."""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

if TYPE_CHECKING:
    from punctual.client.run import Run


class FieldError(NamedTuple):
    """One wrong field: its dotted path, as it was sent, and what to do about it."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True):
    """A refusal as the server wrote it (RFC 9457)."""

    status: int
    code: str
    title: str
    detail: str
    request_id: str | None = None
    errors: tuple[FieldError, ...] = ()
    raw: dict[str, Any] = msgspec.field(default_factory=dict)


class PunctualError(Exception):
    """Whatever goes wrong here is one of these."""

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
        # Whether the call, or an attempt of it, may have been carried out all the same.
        self.uncertain = uncertain
        self.retry_after = retry_after  # seconds
        # Of the call: asked again with this key it does nothing twice.
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> int | None:
        """Of HTTP."""
        return None if self.problem is None else self.problem.status

    @property
    def code(self) -> str | None:
        return None if self.problem is None else self.problem.code

    @property
    def request_id(self) -> str | None:
        return None if self.problem is None else self.problem.request_id

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """Every wrong field, where fields were wrong."""
        return () if self.problem is None else self.problem.errors


class BadWebhook(PunctualError):
    """What was received is not what Punctual sent, or not sent now: it is not to be believed."""


class Misuse(PunctualError, ValueError):
    """What was asked of the client itself makes no sense: nothing was sent."""


class Refused(PunctualError):
    """The server said no, and will say it again."""

    advice: ClassVar[str] = ""


class Unauthenticated(Refused):
    advice = "Set PUNCTUAL_TOKEN, or pass token=, to a token that is in force."


class Forbidden(Refused):
    advice = "Use a token with a higher role; whoami() shows the role of this one."


class NotFound(Refused):
    advice = "If it should be there: check the id, the address, and the tenant of the token."


class Conflict(Refused):
    """The state of the job or run does not allow it."""


class PreconditionFailed(Refused):
    advice = "Repeat the change with the version that it has now."


class Invalid(Refused):
    """`errors` names every wrong field at once."""


class TooLarge(Refused):
    advice = "Send less at once: 512 KiB, 5 MiB as a batch, 256 KiB as a payload."


class RateLimited(PunctualError):
    """More was asked than the tenant may: `retry_after` says when to ask again."""


class Unavailable(PunctualError):
    """No answer, or one that means that trying later may help; `uncertain` says what is open."""


class Unexpected(PunctualError):
    """The server answered something that no Punctual of this contract says."""


class _AboutARun(PunctualError):
    def __init__(self, message: str, run: "Run") -> None:
        super().__init__(message)
        self.args = (message, run)  # with which another process makes it anew
        self.run = run


class WaitTimeout(_AboutARun):
    """A run has not ended in time; `run` is how it was last seen."""


class RunFailed(_AboutARun):
    """A run ended without success, or has not ended."""
