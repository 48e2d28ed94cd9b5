"""Check that lists say the same as job states and history. The expectation is computed anew."""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from punctual.aws.dynamodb.lists.job_row import RecentOutcome, outcome_of
from punctual.domain.failures import FAILED_STATUSES
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger
from punctual.engine.ports.lists.failures import Failures
from punctual.engine.ports.lists.job_index import JobFilters, JobHealth, JobIndex, JobQuery
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.lists.run_index import RunIndex
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.run_views import run_of_waiting
from punctual.engine.queries.slices import finish
from tests.support.list_plays.feed_clients import Shown
from tests.support.list_plays.recorded_plays import Truth
from tests.support.simulation.scenario import TENANT

SHOWN_OUTCOMES = 30
MAX_PAGES = 2_000
FIRED_AHEAD = timedelta(minutes=10)  # at most, so that a list of then shows these runs
ShownRun = tuple[str, str, str, str, int, str, int]
Error = tuple[str, str]  # the status and the last error line
OpenFailures = dict[tuple[str, Error], tuple[int, str]]
"""The number of runs and the last run of each error, by job."""


def jobs_of(truth: Truth) -> dict[JobKey, JobState]:
    return {key: stored.state for key, stored in truth.states.items() if not stored.state.is_blank}


def shown_run(job_id: str, run: Run) -> ShownRun:
    return (
        run.run_id,
        job_id,
        run.status.value,
        run.reason.value,
        run.token,
        run.past_attempts,
        run.occurrence_count,
    )


def expected_runs(truth: Truth, now: datetime) -> list[ShownRun]:
    """Return all runs in their latest form, newest first, without those fired ahead of time."""
    runs: dict[tuple[str, str], Run] = {}
    for key, state in jobs_of(truth).items():
        ended = truth.ended.get(key, {}).values()
        waiting = (run_of_waiting(state, entry) for entry in state.wait_queue)
        for run in (*ended, *waiting, *state.runs):
            runs[run.run_id, key.job_id] = run
    return [
        shown_run(job_id, run)
        for (_, job_id), run in sorted(runs.items(), reverse=True)
        if not _is_ahead(run, now)
    ]


def _is_ahead(run: Run, now: datetime) -> bool:
    is_unclaimed = run.status is RunStatus.QUEUED and not run.token
    return is_unclaimed and run.trigger is Trigger.SCHEDULE and run.due_at > now


def check_runs(index: RunIndex, truth: Truth, now: datetime, chance: random.Random) -> None:
    """Check all pages of the list of runs, and those of a status."""
    for status in (None, chance.choice(list(RunStatus)).value):
        filters = RunFilters() if status is None else RunFilters(status=frozenset({status}))
        listed = _all_runs(index, filters, chance.choice((1, 3, 50)), now)
        expected = [run for run in expected_runs(truth, now) if status in (None, run[2])]
        assert listed == expected, f"the list of runs: {_difference(listed, expected)}"


def _all_runs(index: RunIndex, filters: RunFilters, limit: int, now: datetime) -> list[ShownRun]:
    runs: list[ShownRun] = []
    after: tuple[str, ...] | None = None
    for _ in range(MAX_PAGES):
        page = finish(index.page(TENANT, filters, limit, after, now))
        assert len(page.items) <= limit
        runs += [shown_run(view.job_id, view.run) for view in page.items]
        after = page.next_cursor
        if after is None:
            return runs
    raise AssertionError("the list of runs does not end")


def expected_outcomes(truth: Truth, key: JobKey) -> list[RecentOutcome]:
    """Return the newest outcomes of a job, by the runs of its history and of its state."""
    outcomes = {run.run_id: outcome_of(run) for run in truth.ended.get(key, {}).values()}
    return sorted(outcomes.values(), reverse=True)[:SHOWN_OUTCOMES]


def check_job_index(index: JobIndex, truth: Truth, now: datetime, chance: random.Random) -> None:
    """Check the pages of all jobs, of a status, and of the jobs that are failing."""
    jobs = jobs_of(truth)
    failing = {job_id for job_id, _ in expected_failures(truth)}
    status = chance.choice(list(JobStatus))
    cases: Sequence[tuple[JobFilters, Iterable[str]]] = (
        (JobFilters(), [key.job_id for key in jobs]),
        (
            JobFilters(status=frozenset({status.value})),
            [key.job_id for key, state in jobs.items() if state.status is status],
        ),
        (JobFilters(health=JobHealth.FAILING), failing),
    )
    for filters, expected in cases:
        listed = _all_jobs(index, JobQuery(filters), chance.choice((1, 2, 50)), now)
        assert listed == sorted(expected, reverse=True), f"the list of jobs with {filters}"


def shown_lists(index: JobIndex, runs: RunIndex, truth: Truth, now: datetime) -> Shown:
    """Return what a page shows that has read the lists, also of runs that are fired ahead."""
    shown: Shown = {}
    for job_id in _all_jobs(index, JobQuery(), 50, now):
        state = truth.states[JobKey(TENANT, job_id)].state
        shown["job", job_id] = (state.status.value, str(state.edition))
    for run in _all_runs(runs, RunFilters(), 50, now + FIRED_AHEAD):
        run_id, _, status, reason, _, _, occurrence_count = run
        shown["run", run_id] = (status, reason, str(occurrence_count))
    return shown


def _all_jobs(index: JobIndex, query: JobQuery, limit: int, now: datetime) -> list[str]:
    job_ids: list[str] = []
    after: tuple[str, ...] | None = None
    for _ in range(MAX_PAGES):
        page = index.page(TENANT, query, limit, after, now)
        assert len(page.positions) <= limit
        job_ids += [position[-1] for position in page.positions]
        after = page.next_cursor
        if after is None:
            return job_ids
    raise AssertionError("the list of jobs does not end")


def expected_failures(truth: Truth) -> OpenFailures:
    """Return the open failures by the outcomes of each job, in the order of their ends."""
    failures: OpenFailures = {}
    for key, state in jobs_of(truth).items():
        if state.status is not JobStatus.CANCELLED:
            for error, runs in _open_runs(truth, key).items():
                failures[key.job_id, error] = len(runs), runs[-1].run_id
    return failures


def _open_runs(truth: Truth, key: JobKey) -> Mapping[Error, list[Run]]:
    open_runs: dict[Error, list[Run]] = {}
    for run in truth.ended.get(key, {}).values():
        began_at = run.attempt_at or run.ended_at
        assert began_at is not None
        if run.status is RunStatus.SUCCESS:
            open_runs = {
                error: runs
                for error, runs in open_runs.items()
                if max(other.attempt_at or other.ended_at or began_at for other in runs) >= began_at
            }
        elif run.status in FAILED_STATUSES:
            error = run.status.value, _error_line(truth, key, run)
            open_runs.setdefault(error, []).append(run)
    return open_runs


def _error_line(truth: Truth, key: JobKey, run: Run) -> str:
    row = truth.row(key, run.run_id)
    if row.detail.error:
        return row.detail.error
    if run.status is RunStatus.TIMED_OUT:
        return "timed out"
    return "lost" if run.reason is Reason.LOST else "failed"


def check_failures(failures: Failures, truth: Truth, chance: random.Random) -> None:
    expected = expected_failures(truth)
    listed = []
    after: tuple[str, ...] | None = None
    for _ in range(MAX_PAGES):
        page = failures.page(TENANT, chance.choice((1, 2, 50)), after)
        listed += list(page.failures)
        after = page.next_cursor
        if after is None:
            break
    shown = {
        (failure.job_id, (failure.status.value, failure.error)): (
            failure.count,
            failure.last_run_id,
        )
        for failure in listed
    }
    assert shown == expected, f"open failures: {shown}, by the history: {expected}"
    assert len(listed) == len(expected), "a failure is shown twice"
    times = [failure.last_at for failure in listed]
    assert times == sorted(times, reverse=True)
    counts = failures.counts(TENANT)
    assert counts.acknowledged + counts.unacknowledged == len(expected)


def _difference(listed: Sequence[ShownRun], expected: Sequence[ShownRun]) -> str:
    return (
        f"not expected {[run for run in listed if run not in expected][:2]}, "
        f"missing {[run for run in expected if run not in listed][:2]}, "
        f"{len(listed)} of {len(expected)}"
    )
