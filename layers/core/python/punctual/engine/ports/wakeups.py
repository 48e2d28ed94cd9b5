"""The port for signals to pollers and executors."""

from collections.abc import Sequence
from typing import Protocol

from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer


class WakeUps(Protocol):
    def nudge(self, timers: Sequence[Timer]) -> None:
        """Signal new timers to pollers that may have read their partitions already."""

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        """Ask the holders of these runs to stop now. Their next heartbeat reports it too."""
