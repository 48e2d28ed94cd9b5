"""Looks that fail each time, or leave something undone: again after pauses that double.

Those that fail are set aside in the end. What is undone is owed: it waits for whom it needs.
"""

from datetime import datetime, timedelta

from punctual.engine.ports.rows import Key

PAUSE = timedelta(seconds=15)
SHORT = timedelta(seconds=1)  # what could not be done was mostly refused for a moment
PAUSE_MOST = timedelta(minutes=5)
UNANSWERED_MOST = timedelta(seconds=15)  # it is asked soon after it is back
TRIES = 8  # over about 18 minutes
KNOWN = 10_000  # jobs with something undone; others may have seen to the oldest since


class _Row:
    """By job: how often in a row, and when again."""

    def __init__(self, first: timedelta, most: int | None = None) -> None:
        self._first = first
        self._most = most
        self._tries: dict[Key, tuple[int, datetime]] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def once_more(self, key: Key, now: datetime) -> tuple[int, datetime]:
        """A look that somebody asked for within the pause does not count."""
        before, again = self._tries.pop(key, (0, now))
        if before == 0 or now >= again:
            before, again = before + 1, now + self._pause(before)
        self._tries[key] = before, again
        if self._most is not None and len(self._tries) > self._most:
            del self._tries[next(iter(self._tries))]
        return before, again

    def _pause(self, doubled: int) -> timedelta:
        return min(self._first * (1 << min(doubled, 20)), PAUSE_MOST)

    def forget(self, key: Key) -> None:
        self._tries.pop(key, None)


class EvaluationRetries:
    """How often the look at each of these jobs has failed, or left something undone, in a row."""

    def __init__(self) -> None:
        self._failed, self._undone = _Row(PAUSE), _Row(SHORT, KNOWN)
        self._unanswered = 0  # batches, in a row

    def __len__(self) -> int:
        return len(self._failed) + len(self._undone)

    def again_at(self, key: Key, now: datetime, waits: bool = False) -> datetime | None:
        """When to look again; None: no more, until something else asks for a look.

        What `waits` is not set aside, however often its look has failed.
        """
        tries, again = self._failed.once_more(key, now)
        if tries < TRIES or waits:
            return again
        self.mended(key)
        return None

    def undone_at(self, key: Key, now: datetime) -> datetime:
        """When to look again at what was decided, and could not all be done."""
        self._failed.forget(key)
        return self._undone.once_more(key, now)[1]

    def unanswered_at(self, now: datetime) -> datetime:
        """When to look again at a batch that a store did not answer.

        Its timers may have been put before: each time anew, in rows of their own.
        """
        pause = min(SHORT * (1 << min(self._unanswered, 10)), UNANSWERED_MOST)
        self._unanswered += 1
        return now + pause

    def answered(self) -> None:
        self._unanswered = 0

    def mended(self, key: Key) -> None:
        self._failed.forget(key)
        self._undone.forget(key)
