"""Looks that fail each time: tried again after pauses that double, and set aside in the end."""

from datetime import datetime, timedelta

from punctual.engine.ports import Key

PAUSE = timedelta(seconds=15)
PAUSE_MOST = timedelta(minutes=5)
TRIES = 8  # over about 18 minutes


class Failing:
    """How often the look at each of these jobs has failed, in a row."""

    def __init__(self) -> None:
        self._tries: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def again_at(self, key: Key, now: datetime) -> datetime | None:
        """When to look again; None: no more, until something else asks for a look."""
        tries = self._tries.get(key, 0) + 1
        if tries >= TRIES:
            del self._tries[key]
            return None
        self._tries[key] = tries
        return now + min(PAUSE * (1 << tries - 1), PAUSE_MOST)

    def mended(self, key: Key) -> None:
        self._tries.pop(key, None)
