"""Derives from a change what it adds to the counts of runs and of each minute."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from punctual.domain.identifiers import bucket_of
from punctual.domain.run import ENDED_RUN_STATUSES, Run, RunStatus
from punctual.domain.utc import MILLISECOND
from punctual.engine.queries.lateness import step_of, units_of
from punctual.lambdas.status.changes import Changes, RunChange

RUN_COUNT_PREFIX, LATENESS_COUNT_PREFIX = "run_", "late_"  # prefixes of count names
STARTED_COUNT, SUCCEEDED_COUNT, FAILED_COUNT, QUEUED_COUNT = (
    "started",
    "succeeded",
    "failed",
    "queued",
)
ENDED_COUNTS = (SUCCEEDED_COUNT, FAILED_COUNT)

LIST_LAG_COUNT_PREFIX = "lag_"

_COUNTED_AS = {
    RunStatus.SUCCESS: SUCCEEDED_COUNT,
    RunStatus.FAILED: FAILED_COUNT,
    RunStatus.TIMED_OUT: FAILED_COUNT,
}
LIVE_RUN_COUNTS = frozenset(
    RUN_COUNT_PREFIX + status for status in RunStatus if status not in ENDED_RUN_STATUSES
)


def status_count_changes(changes: Changes) -> Counter[str]:
    """Return how a change moves the counts of runs by status."""
    count_changes: Counter[str] = Counter()
    for change in changes.runs:
        if change.before is not None:
            count_changes[RUN_COUNT_PREFIX + change.before.status] -= _occurrence_count(
                change.before
            )
        if change.after is not None:
            count_changes[RUN_COUNT_PREFIX + change.after.status] += _occurrence_count(change.after)
    return count_changes


def live_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of live runs, which job states show at any time.

    >>> live_counts({"run_QUEUED": 2, "run_SUCCESS": 3})
    {'run_QUEUED': 2}
    """
    return {name: count for name, count in counts.items() if name in LIVE_RUN_COUNTS}


def moved_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return by how much a change moves these counts, as absolute values.

    >>> moved_counts({"run_QUEUED": -1, "run_RUNNING": 1, "run_SUCCESS": 1})
    {'run_QUEUED': 1, 'run_RUNNING': 1}
    """
    return {name: abs(count) for name, count in live_counts(counts).items() if count}


def minute_counts(changes: Changes) -> Iterator[tuple[datetime, str, int]]:
    """Yield the counts for each minute. A queued run counts in the minute of its due time."""
    for change in changes.runs:
        yield from _queued_counts(change)
        yield from _started_counts(change)
        after = change.after
        if after is not None and after.ended_at is not None and after.status in _COUNTED_AS:
            yield bucket_of(after.ended_at), _COUNTED_AS[after.status], 1


def _queued_counts(change: RunChange) -> Iterator[tuple[datetime, str, int]]:
    for run, delta in ((change.before, -1), (change.after, 1)):
        if run is not None and run.status is RunStatus.QUEUED:
            yield bucket_of(run.due_at), QUEUED_COUNT, delta


def _started_counts(change: RunChange) -> Iterator[tuple[datetime, str, int]]:
    """Yield a start for each new fencing token, since each claim begins an attempt."""
    after = change.after
    token = 0 if change.before is None else change.before.token
    if after is None or after.attempt_at is None or after.token <= token:
        return
    yield bucket_of(after.attempt_at), STARTED_COUNT, 1
    if after.lateness is not None and after.started_at == after.attempt_at:
        lateness = after.lateness - after.wait_queue_time
        yield bucket_of(after.attempt_at), f"{LATENESS_COUNT_PREFIX}{lateness_step(lateness)}", 1


def _occurrence_count(run: Run) -> int:
    return run.occurrence_count if run.status in ENDED_RUN_STATUSES else 1


def lateness_step(lateness: timedelta) -> int:
    """Return the lateness step, in units of a millisecond.

    >>> [lateness_step(timedelta(milliseconds=ms)) for ms in (0, 1, 2, 1000, 1024)]
    [0, 0, 8, 80, 80]
    """
    return step_of(lateness / MILLISECOND)


def list_lag_count(lag: timedelta) -> str:
    """Return the name of the count of changes that lists showed so much later.

    >>> list_lag_count(timedelta(milliseconds=1024))
    'lag_80'
    """
    return f"{LIST_LAG_COUNT_PREFIX}{lateness_step(lag)}"


def step_milliseconds(step: int) -> float:
    """Return the lateness of a step in milliseconds.

    >>> step_milliseconds(0), step_milliseconds(80)
    (1.0, 1024.0)
    """
    return round(units_of(step), 3)
