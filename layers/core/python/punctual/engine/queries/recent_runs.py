"""The last outcomes of jobs, and how long their runs usually take."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple, Protocol

from punctual.domain.job_state import JobState
from punctual.domain.run import ENDED_RUN_STATUSES, RunStatus
from punctual.engine.ports.history import History, RecentRun, recent_run_of
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.slices import Sliced

MAX_RECENT_RUNS = 30
USUAL_DURATION_RUNS = 30  # successes that the usual duration is the median of
MAX_RUNS_SEARCHED = 100  # newest runs of a job that are searched for these successes
_JOBS_OF_ONE_READ = 20


class Outcomes(NamedTuple):
    """The last ended runs of a job, newest first by scheduled time."""

    recent: Sequence[RecentRun] = ()
    usual_duration: timedelta | None = None


NO_OUTCOMES = Outcomes()


class ListedRuns(Protocol):
    """Keeps the newest ended runs of each job in its row of the list of jobs."""

    def recent_runs(self, job_keys: Sequence[JobKey]) -> Mapping[JobKey, Sequence[RecentRun]]:
        """Return the newest ended runs of these jobs, newest first, in one read."""


class RecentRuns:
    """Reads outcomes of jobs from the history.

    With `listed_runs`, outcomes of several jobs come from their rows in the list, because each job
    would cost a query of the history.
    """

    def __init__(self, history: History, listed_runs: ListedRuns | None = None) -> None:
        self._history = history
        self._listed_runs = listed_runs

    def of_job(self, state: JobState, now: datetime) -> Outcomes:
        return self._load([state], now)[0]

    def of_jobs(self, states: Sequence[JobState], now: datetime) -> Sliced[list[Outcomes]]:
        if self._listed_runs is not None:
            job_keys = _keys_with_runs(states)
            rows = self._listed_runs.recent_runs(job_keys) if job_keys else {}
            yield
            return [_outcomes_of_job(state, rows) for state in states]
        outcomes: list[Outcomes] = []
        for start in range(0, len(states), _JOBS_OF_ONE_READ):
            outcomes += self._load(states[start : start + _JOBS_OF_ONE_READ], now)
            yield
        return outcomes

    def _load(self, states: Sequence[JobState], now: datetime) -> list[Outcomes]:
        """Return the outcomes of each job. A job without any run costs no read."""
        keys = _keys_with_runs(states)
        rows = dict(self._history.recent_runs(keys, MAX_RECENT_RUNS, now)) if keys else {}
        longer = [
            key
            for key, runs in rows.items()
            if len(runs) == MAX_RECENT_RUNS and len(_durations(runs)) < USUAL_DURATION_RUNS
        ]
        if longer:
            rows.update(self._history.recent_runs(longer, MAX_RUNS_SEARCHED, now))
        return [_outcomes_of_job(state, rows) for state in states]


def _keys_with_runs(states: Sequence[JobState]) -> list[JobKey]:
    return [
        JobKey(state.tenant, state.job_id)
        for state in states
        if state.latest_run_id or state.latest_not_run_id
    ]


def _outcomes_of_job(state: JobState, rows: Mapping[JobKey, Sequence[RecentRun]]) -> Outcomes:
    return _outcomes(state, rows.get(JobKey(state.tenant, state.job_id), ()))


def _outcomes(state: JobState, rows: Sequence[RecentRun]) -> Outcomes:
    """Merge the runs of the history with those that only the job state has."""
    by_id = {
        run.run_id: recent_run_of(run)
        for run in state.unrecorded
        if run.status in ENDED_RUN_STATUSES
    }
    by_id.update((run.run_id, run) for run in rows)
    newest = sorted(by_id.values(), key=lambda run: run.run_id, reverse=True)
    recent = sorted(
        newest[:MAX_RECENT_RUNS], key=lambda run: (run.scheduled_at, run.run_id), reverse=True
    )
    return Outcomes(recent, usual_duration(newest))


def usual_duration(runs: Iterable[RecentRun]) -> timedelta | None:
    """Return the median duration of the newest successes. `runs` begin with the newest."""
    durations = _durations(runs)[:USUAL_DURATION_RUNS]
    return timedelta(seconds=median(durations)) if durations else None


def _durations(runs: Iterable[RecentRun]) -> list[float]:
    return [
        run.duration.total_seconds()
        for run in runs
        if run.status is RunStatus.SUCCESS and run.duration is not None
    ]
