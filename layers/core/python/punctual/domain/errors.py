"""What can go wrong, by name; the API maps each code to a status in one table."""

from typing import ClassVar, NamedTuple


class FieldError(NamedTuple):
    """One wrong field: its dotted path as the caller wrote it, and what to do about it."""

    field: str
    message: str


class PunctualError(Exception):
    """An error that a caller can understand; `code` is stable, the text is for people."""

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(PunctualError):
    code = "NOT_FOUND"


class Conflict(PunctualError):
    code = "CONFLICT"


class PreconditionFailed(PunctualError):
    code = "PRECONDITION_FAILED"


class Invalid(PunctualError):
    """The input is wrong; `errors` names every wrong field at once."""

    code = "INVALID"

    def __init__(self, message: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(message)
        self.errors = errors

    @classmethod
    def of(cls, *errors: FieldError) -> "Invalid":
        return cls("; ".join(f"{e.field}: {e.message}" for e in errors), errors)


class TooMuchWork(PunctualError):
    """The answer would take more work than one request may cause."""

    code = "TOO_MUCH_WORK"


class LimitExceeded(PunctualError):
    """Less, or later: `again_after` seconds from now there may be room."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, message: str, again_after: float = 1.0) -> None:
        super().__init__(message)
        self.again_after = again_after


class Unavailable(PunctualError):
    """A store or a queue did not answer; trying again later may help."""

    code = "UNAVAILABLE"


class Unreadable(Unavailable):
    """A row is damaged. It alone is passed over; what needs it is refused."""


class LaterVersion(Unavailable):
    """Written by a version that knew more: it stays as it is until that version is back."""
