"""Derives from a change what it adds to the counts of jobs, of runs and of each minute."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from punctual.domain.identifiers import bucket_of
from punctual.domain.run import ENDED as OVER
from punctual.domain.run import Run, RunStatus
from punctual.engine.queries.lateness import step_of, units_of
from punctual.lambdas.status.changes import Changes, RunChange

JOB, RUN, LATE = "job_", "run_", "late_"  # prefixes of count names
STARTED, SUCCEEDED, FAILED, QUEUED = "started", "succeeded", "failed", "queued"
ENDED = (SUCCEEDED, FAILED)

_COUNTED_AS = {
    RunStatus.SUCCESS: SUCCEEDED,
    RunStatus.FAILED: FAILED,
    RunStatus.TIMED_OUT: FAILED,
}
LIVE = frozenset(RUN + status for status in RunStatus if status not in OVER)
_MILLISECOND = timedelta(milliseconds=1)


def totals(changes: Changes) -> Counter[str]:
    """Return how a change moves the counts by job and run status."""
    found: Counter[str] = Counter()
    job = changes.job
    if job is not None and job.before is not job.after:
        if job.before is not None:
            found[JOB + job.before] -= 1
        if job.after is not None:
            found[JOB + job.after] += 1
    for change in changes.runs:
        if change.before is not None:
            found[RUN + change.before.status] -= _weight(change.before)
        if change.after is not None:
            found[RUN + change.after.status] += _weight(change.after)
    return found


def standing(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of jobs and live runs, which job states show at any time.

    >>> standing({"job_PAUSED": 1, "run_QUEUED": 2, "run_SUCCESS": 3})
    {'job_PAUSED': 1, 'run_QUEUED': 2}
    """
    return {name: count for name, count in counts.items() if name.startswith(JOB) or name in LIVE}


def moved(counts: Mapping[str, int]) -> dict[str, int]:
    """Return by how much a change moves these counts, as absolute values.

    >>> moved({"run_QUEUED": -1, "run_RUNNING": 1, "run_SUCCESS": 1})
    {'run_QUEUED': 1, 'run_RUNNING': 1}
    """
    return {name: abs(count) for name, count in standing(counts).items() if count}


def minutes(changes: Changes) -> Iterator[tuple[datetime, str, int]]:
    """Yield the counts for each minute. A queued run counts in the minute of its due time."""
    for change in changes.runs:
        yield from _queued(change)
        yield from _started(change)
        after = change.after
        if after is not None and after.ended_at is not None and after.status in _COUNTED_AS:
            yield bucket_of(after.ended_at), _COUNTED_AS[after.status], 1


def _queued(change: RunChange) -> Iterator[tuple[datetime, str, int]]:
    for run, one in ((change.before, -1), (change.after, 1)):
        if run is not None and run.status is RunStatus.QUEUED:
            yield bucket_of(run.due_at), QUEUED, one


def _started(change: RunChange) -> Iterator[tuple[datetime, str, int]]:
    """Yield a start for each new fencing token, since each claim begins an attempt."""
    after = change.after
    token = 0 if change.before is None else change.before.token
    if after is None or after.attempt_at is None or after.token <= token:
        return
    yield bucket_of(after.attempt_at), STARTED, 1
    if after.lateness is not None and after.started_at == after.attempt_at:
        late = after.lateness - after.in_line
        yield bucket_of(after.attempt_at), f"{LATE}{step(late)}", 1


def _weight(run: Run) -> int:
    return run.count if run.status in OVER else 1


def step(lateness: timedelta) -> int:
    """Return the lateness step, in units of a millisecond.

    >>> [step(timedelta(milliseconds=ms)) for ms in (0, 1, 2, 1000, 1024)]
    [0, 0, 8, 80, 80]
    """
    return step_of(lateness / _MILLISECOND)


def milliseconds(step: int) -> float:
    """Return the lateness of a step in milliseconds.

    >>> milliseconds(0), milliseconds(80)
    (1.0, 1024.0)
    """
    return round(units_of(step), 3)
