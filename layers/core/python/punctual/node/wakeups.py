"""What the node's engine does at once: pass new timers on, and keep stop requests."""

from collections.abc import Sequence

from punctual.engine.dispatch.poller import Poller
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer


class NodeWakeUps:
    """Passes new timers to the poller, and keeps stop requests until the commit."""

    def __init__(self) -> None:
        self.poller: Poller | None = None
        self.stopped_run_ids: list[str] = []

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        if self.poller is not None:
            self.poller.add_timers(timers)

    def request_stop(self, _key: JobKey, run_ids: Sequence[str]) -> None:
        self.stopped_run_ids.extend(run_ids)
