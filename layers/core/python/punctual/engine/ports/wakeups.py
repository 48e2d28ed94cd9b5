"""The port for signals to pollers and executors."""

from collections.abc import Sequence
from typing import Protocol

from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer


class WakeUps(Protocol):
    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        """Signal new timers to pollers that may have read their partitions already."""

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        """Ask the holders of these runs to stop now. Their next heartbeat reports it too."""
