"""Looks that fail each time: again after pauses that double; most are set aside in the end."""

from datetime import datetime, timedelta

from punctual.engine.ports import Key

PAUSE = timedelta(seconds=15)
PAUSE_MOST = timedelta(minutes=5)
TRIES = 8  # over about 18 minutes


class Failing:
    """How often the look at each of these jobs has failed, in a row."""

    def __init__(self) -> None:
        self._tries: dict[Key, tuple[int, datetime]] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def again_at(self, key: Key, now: datetime, waits: bool = False) -> datetime | None:
        """When to look again; None: no more, until something else asks for a look.

        A look that somebody asked for within the pause does not count. What `waits` is not set
        aside, however often its look has failed.
        """
        before, again = self._tries.get(key, (0, now))
        if now < again:
            return again
        tries = min(before + 1, TRIES - 1) if waits else before + 1
        if tries >= TRIES:
            del self._tries[key]
            return None
        again = now + min(PAUSE * (1 << tries - 1), PAUSE_MOST)
        self._tries[key] = tries, again
        return again

    def mended(self, key: Key) -> None:
        self._tries.pop(key, None)
