"""Signals to pollers and to executors."""

from collections.abc import Sequence
from typing import Protocol

from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer


class WakeUps(Protocol):
    def nudge(self, timers: Sequence[Timer]) -> None:
        """New timers stand in windows that may be handed out already."""

    def kill(self, key: Key, run_ids: Sequence[str]) -> None:
        """Holders of these should stop now; they also learn it with their next beat."""
