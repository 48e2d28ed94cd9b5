"""Retries of failed and of incomplete evaluations, after pauses that double.

A job with failed evaluations is parked after the last try. Incomplete evaluations are retried
until their effects are done.
"""

from datetime import datetime, timedelta

from punctual.engine.ports.rows import JobKey

FAILED_RETRY_DELAY = timedelta(seconds=15)
INCOMPLETE_RETRY_DELAY = timedelta(seconds=1)  # most incomplete evaluations succeed soon
MAX_EVALUATION_RETRY_DELAY = timedelta(minutes=5)
# So that work goes on soon after the store is back.
MAX_UNANSWERED_RETRY_DELAY = timedelta(seconds=15)
MAX_FAILED_EVALUATIONS = 8  # in about 18 minutes
MAX_INCOMPLETE_JOBS = 10_000  # incomplete jobs; other pollers may have completed the oldest since


class _RetrySchedule:
    """The number of tries in a row, and the time of the next one, by job."""

    def __init__(self, first_delay: timedelta, max_jobs: int | None = None) -> None:
        self._first_delay = first_delay
        self._max_jobs = max_jobs
        self._attempts: dict[JobKey, tuple[int, datetime]] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def count_attempt(self, key: JobKey, now: datetime) -> tuple[int, datetime]:
        """Count a try. Return the number of tries and the time of the next one.

        An evaluation within the pause, which another trigger started, does not count.
        """
        attempts, retry_at = self._attempts.pop(key, (0, now))
        if attempts == 0 or now >= retry_at:
            attempts, retry_at = attempts + 1, now + self._delay(attempts)
        self._attempts[key] = attempts, retry_at
        if self._max_jobs is not None and len(self._attempts) > self._max_jobs:
            del self._attempts[next(iter(self._attempts))]
        return attempts, retry_at

    def _delay(self, doublings: int) -> timedelta:
        return min(self._first_delay * (1 << min(doublings, 20)), MAX_EVALUATION_RETRY_DELAY)

    def forget(self, key: JobKey) -> None:
        self._attempts.pop(key, None)


class EvaluationRetries:
    """Counts the failed and the incomplete evaluations in a row of each job."""

    def __init__(self) -> None:
        self._failed = _RetrySchedule(FAILED_RETRY_DELAY)
        self._incomplete = _RetrySchedule(INCOMPLETE_RETRY_DELAY, MAX_INCOMPLETE_JOBS)
        self._unanswered_batches = 0  # batches in a row

    def __len__(self) -> int:
        return len(self._failed) + len(self._incomplete)

    def failed_retry_at(
        self, key: JobKey, now: datetime, never_parks: bool = False
    ) -> datetime | None:
        """Return when to evaluate a failed job again, or None if it is parked now.

        A parked job stays so until another trigger. With `never_parks`, a job is never parked.
        """
        attempts, retry_at = self._failed.count_attempt(key, now)
        if attempts < MAX_FAILED_EVALUATIONS or never_parks:
            return retry_at
        self.forget(key)
        return None

    def incomplete_retry_at(self, key: JobKey, now: datetime) -> datetime:
        """Return when to evaluate a job with incomplete effects again."""
        self._failed.forget(key)
        return self._incomplete.count_attempt(key, now)[1]

    def unanswered_retry_at(self, now: datetime) -> datetime:
        """Return when to evaluate a batch again that the store did not answer.

        The pause doubles, because each try may put new timers in rows of their own.
        """
        delay = min(
            INCOMPLETE_RETRY_DELAY * (1 << min(self._unanswered_batches, 10)),
            MAX_UNANSWERED_RETRY_DELAY,
        )
        self._unanswered_batches += 1
        return now + delay

    def reset_unanswered(self) -> None:
        self._unanswered_batches = 0

    def forget(self, key: JobKey) -> None:
        self._failed.forget(key)
        self._incomplete.forget(key)
