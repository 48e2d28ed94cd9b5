"""The port to a running attempt."""

from typing import Literal, Protocol


class Stoppable(Protocol):
    """Work that can be stopped."""

    def cancel_runs(self, reason: Literal["CANCEL", "SHUTDOWN", "LOST"], /) -> None: ...
