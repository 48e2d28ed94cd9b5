"""A deadline for the AWS calls of one request, because the waiting client has a timeout."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from punctual.domain.errors import Unavailable


class Deadline:
    """The time after which no call to AWS starts, and no retry of an earlier call.

    A try under way ends by its own timeout. So a request lasts at most its limit and one try of
    one call (docs/decisions/0017-availability.md).
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._ends_steady: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the deadline for one request. An environment of Lambda handles one at a time."""
        self._ends_steady = self._steady() + seconds
        try:
            yield
        finally:
            self._ends_steady = None

    def attach_to(self, client: Any) -> None:
        """Check the deadline before each call of the client, and before each retry of botocore."""
        for event in ("before-call", "before-send"):
            client.meta.events.register_first(event, self._check)

    def _check(self, **_: Any) -> None:
        if self._ends_steady is not None and self._steady() >= self._ends_steady:
            raise Unavailable("AWS takes too long to answer: try again.")
