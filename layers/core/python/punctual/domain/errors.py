"""The tree of errors. The API maps each code to an HTTP status in one table."""

from typing import ClassVar, NamedTuple


class FieldError(NamedTuple):
    """A wrong field: its dotted path in the request, and what the caller can do."""

    field: str
    message: str


class PunctualError(Exception):
    """An error for the caller. `code` is stable; `message` is for people."""

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(PunctualError):
    code = "NOT_FOUND"


class Conflict(PunctualError):
    code = "CONFLICT"


class NameTaken(Conflict):
    """Another recurring job of the tenant has the name. `job_id` is that job."""

    code = "NAME_TAKEN"

    def __init__(self, name: str, job_id: str) -> None:
        super().__init__(
            f"The name {name!r} belongs to the recurring job {job_id}: "
            "use another name, or change or cancel that job."
        )
        self.job_id = job_id


class PreconditionFailed(PunctualError):
    code = "PRECONDITION_FAILED"


class Invalid(PunctualError):
    """The input is wrong. `errors` lists all wrong fields."""

    code = "INVALID"

    def __init__(self, message: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(message)
        self.errors = errors

    @classmethod
    def of(cls, *errors: FieldError) -> "Invalid":
        return cls("; ".join(f"{error.field}: {error.message}" for error in errors), errors)


class TooMuchWork(PunctualError):
    """The answer would take more work than one request may cause."""

    code = "TOO_MUCH_WORK"


class LimitExceeded(PunctualError):
    """A limit is reached. A smaller request, or one after `retry_after_seconds`, may succeed."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class WaitQueueFull(LimitExceeded):
    """The wait queue of one job is full. Other jobs are not affected."""


class Unavailable(PunctualError):
    """A store or a queue did not answer. A later retry may succeed."""

    code = "UNAVAILABLE"


class Unreadable(Unavailable):
    """A row is damaged, or has an older format. Lists skip it; a request that needs it fails."""


class LaterVersion(Unavailable):
    """A newer code version wrote the row. It stays unchanged until that version is back."""
