"""Heads as they were last written: a claim need not read what the firing swap wrote, for its
message tells it; nor an end what its own claim wrote.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from punctual.domain.job_state import JobState
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.rows import Key
from punctual.lambdas.executor.attempt import Delivery

FRESH = 5.0  # seconds; later it is likely that another wrote, and a swap that loses is paid too


class Heads:
    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._known: dict[Key, tuple[JobState, float]] = {}

    def learn(self, deliveries: Iterable[Delivery], now: datetime) -> None:
        """What messages tell, unless another has likely written since: a swap that loses is dear.

        Who had it before us may have claimed; and from the head's next look on, that was first.
        """
        for one in deliveries:
            head = one.message.head
            if head is None or one.receives > 1:
                continue
            if head.timer_at is None or head.timer_at > now:
                self.note(Key(one.message.tenant, one.message.job_id), head)

    def claimed(self, granted: Iterable[Assignment]) -> None:
        for one in granted:
            self.note(one.key, one.head)

    def note(self, key: Key, head: JobState) -> None:
        """Of several claims of one job the last wrote the head that stands."""
        before = self._known.get(key)
        if before is None or before[0].version <= head.version:
            self._known[key] = head, self._steady()

    def take(self, keys: Iterable[Key]) -> dict[Key, JobState]:
        """Once: who does not learn what became of its swap knows nothing any more."""
        found = {key: self._known.pop(key) for key in set(keys) if key in self._known}
        now = self._steady()
        return {key: head for key, (head, at) in found.items() if now - at < FRESH}
