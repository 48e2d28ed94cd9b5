"""Retries of failed and of incomplete evaluations, after pauses that double.

A job with failed evaluations is parked after the last try. Incomplete evaluations are retried
until their effects are done.
"""

from datetime import datetime, timedelta

from punctual.engine.ports.rows import Key

PAUSE = timedelta(seconds=15)
SHORT = timedelta(seconds=1)  # most incomplete evaluations succeed soon
PAUSE_MOST = timedelta(minutes=5)
UNANSWERED_MOST = timedelta(seconds=15)  # so that work goes on soon after the store is back
TRIES = 8  # in about 18 minutes
KNOWN = 10_000  # incomplete jobs; other pollers may have completed the oldest since


class _Row:
    """The number of tries in a row, and the time of the next one, by job."""

    def __init__(self, first: timedelta, most: int | None = None) -> None:
        self._first = first
        self._most = most
        self._tries: dict[Key, tuple[int, datetime]] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def once_more(self, key: Key, now: datetime) -> tuple[int, datetime]:
        """Count a try. Return the number of tries and the time of the next one.

        An evaluation within the pause, which another trigger started, does not count.
        """
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
    """Counts the failed and the incomplete evaluations in a row of each job."""

    def __init__(self) -> None:
        self._failed, self._undone = _Row(PAUSE), _Row(SHORT, KNOWN)
        self._unanswered = 0  # batches in a row

    def __len__(self) -> int:
        return len(self._failed) + len(self._undone)

    def again_at(self, key: Key, now: datetime, waits: bool = False) -> datetime | None:
        """Return when to evaluate a failed job again, or None if it is parked now.

        A parked job stays so until another trigger. With `waits`, a job is never parked.
        """
        tries, again = self._failed.once_more(key, now)
        if tries < TRIES or waits:
            return again
        self.mended(key)
        return None

    def undone_at(self, key: Key, now: datetime) -> datetime:
        """Return when to evaluate a job with incomplete effects again."""
        self._failed.forget(key)
        return self._undone.once_more(key, now)[1]

    def unanswered_at(self, now: datetime) -> datetime:
        """Return when to evaluate a batch again that the store did not answer.

        The pause doubles, because each try may put new timers in rows of their own.
        """
        pause = min(SHORT * (1 << min(self._unanswered, 10)), UNANSWERED_MOST)
        self._unanswered += 1
        return now + pause

    def answered(self) -> None:
        self._unanswered = 0

    def mended(self, key: Key) -> None:
        self._failed.forget(key)
        self._undone.forget(key)
