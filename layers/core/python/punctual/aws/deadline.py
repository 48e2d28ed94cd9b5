"""How long one request may go on calling AWS: whoever waits for it has a limit of his own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from punctual.domain.errors import Unavailable


class Deadline:
    """Behind it no call begins, and no further try of one that began before.

    What is under way then ends by its own timeouts, so a request lasts as long as it was given,
    and one try of one call (docs/decisions/0017-availability.md).
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._until: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """One request at a time: an environment of Lambda is given no second one."""
        self._until = self._steady() + seconds
        try:
            yield
        finally:
            self._until = None

    def watch(self, client: Any) -> None:
        """botocore tries a call again by itself: each try is asked about, too."""
        for event in ("before-call", "before-send"):
            client.meta.events.register_first(event, self._check)

    def _check(self, **_: Any) -> None:
        if self._until is not None and self._steady() >= self._until:
            raise Unavailable("AWS takes too long to answer: try again.")
