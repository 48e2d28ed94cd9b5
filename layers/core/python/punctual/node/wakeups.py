"""The node's own end of the Wake port."""

from collections.abc import Sequence

from punctual.engine.dispatch.poller import Poller
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer


class Wiring:
    """The node's own end of the Wake port: nudges go to the poller, kills wait for the commit."""

    def __init__(self) -> None:
        self.poller: Poller | None = None
        self.kills: list[str] = []

    def nudge(self, timers: Sequence[Timer]) -> None:
        if self.poller is not None:
            self.poller.nudge(timers)

    def kill(self, _key: Key, run_ids: Sequence[str]) -> None:
        self.kills.extend(run_ids)
