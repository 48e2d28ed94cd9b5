"""What stood in a table's rows before: a glance may see that, for as long as its `lag` says."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

from punctual.engine.ports.clock import Clock


class Past:
    """Each glance at each row sees how it stood at any moment of the last `lag`."""

    def __init__(self, clock: Clock) -> None:
        self.lag = timedelta(0)
        self.glances = 0
        self.stale = 0  # of them: saw something else than what stood
        self._clock = clock
        self._random = Random(0)
        self._before: dict[Any, list[tuple[datetime, Any]]] = {}  # how it stood until then

    def note(self, key: Any, before: Any) -> None:
        """It is about to change."""
        self._before.setdefault(key, []).append((self._clock(), before))

    def seen(self, key: Any, standing: Any) -> Any:
        self.glances += 1
        if not self.lag:
            return standing
        then = self._clock() - self.lag * self._random.random()
        for until, before in self._before.get(key, ()):
            if then < until:
                self.stale += before != standing
                return before
        return standing
