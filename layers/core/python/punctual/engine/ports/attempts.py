"""The port to a running attempt."""

from typing import Literal, Protocol


class Stoppable(Protocol):
    """Work that can be stopped."""

    def request_stop(self, reason: Literal["CANCEL", "SHUTDOWN", "LOST"], /) -> None: ...
