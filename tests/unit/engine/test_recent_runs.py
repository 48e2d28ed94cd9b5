"""The last outcomes of a job, and the usual duration of its runs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.ports.history import History, RecentRun
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_index import JobQuery
from punctual.engine.ports.monitor import Monitor
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.recent_runs import (
    MAX_RECENT_RUNS,
    MAX_RUNS_SEARCHED,
    RecentRuns,
    usual_duration,
)
from punctual.engine.queries.slices import finish
from tests.support.builders import (
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_id,
)
from tests.support.ports import job_queries
from tests.support.simulation.memory import Memory, MemoryHistory, WriteObserver


def a_success(number: int, seconds: float) -> RecentRun:
    return RecentRun(an_id(number), RunStatus.SUCCESS, NOON, timedelta(seconds=seconds))


def a_failure(number: int) -> RecentRun:
    return RecentRun(an_id(number), RunStatus.FAILED, NOON, timedelta(seconds=500))


class CountingHistory:
    def __init__(self, history: MemoryHistory) -> None:
        self.limits: list[int] = []
        self._history = history

    def recent_runs(self, keys, limit, now):  # type: ignore[no-untyped-def]
        self.limits.append(limit)
        return self._history.recent_runs(keys, limit, now)


def a_history(*statuses: RunStatus) -> CountingHistory:
    """Return a history with a run each second, the first status the newest."""
    history = MemoryHistory(WriteObserver())
    for number, status in enumerate(reversed(statuses)):
        run = a_run(
            an_id(number),
            status,
            scheduled_at=after(number),
            started_at=after(number),
            attempt_at=after(number),
            ended_at=after(number + number % 7),
        )
        history.put_runs([a_row(run.run_id, run=run)])
    return CountingHistory(history)


def recent_runs(history: CountingHistory) -> RecentRuns:
    return RecentRuns(cast(History, history))


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([], None),
        ([a_failure(1)], None),
        ([a_success(1, 3)], 3),
        ([a_success(1, 1), a_failure(2), a_success(3, 2)], 1.5),
        ([*(a_success(n, 2) for n in range(30)), *(a_success(n, 9) for n in range(200))], 2),
    ],
)
def test_usual_duration_is_the_median_of_the_last_30_successes(
    runs: list[RecentRun], seconds: float | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert usual_duration(runs) == expected


def test_job_without_runs_costs_no_read() -> None:
    history = a_history(RunStatus.SUCCESS)
    outcomes = recent_runs(history).of_job(a_job_state(), NOON)
    assert (outcomes.recent, outcomes.usual_duration, history.limits) == ([], None, [])


def test_failures_make_the_search_longer_but_bounded() -> None:
    state = a_job_state(latest_run_id="r")
    always = a_history(*[RunStatus.SUCCESS] * 200)
    recent_runs(always).of_job(state, NOON)
    assert always.limits == [MAX_RECENT_RUNS]
    late = a_history(*[RunStatus.FAILED] * 90, *[RunStatus.SUCCESS] * 50)
    outcomes = recent_runs(late).of_job(state, NOON)
    assert late.limits == [MAX_RECENT_RUNS, MAX_RUNS_SEARCHED]
    assert len(outcomes.recent) == MAX_RECENT_RUNS
    assert outcomes.usual_duration is not None
    never = a_history(*[RunStatus.FAILED] * 150, RunStatus.SUCCESS)
    assert recent_runs(never).of_job(state, NOON).usual_duration is None


def test_outcomes_are_in_the_order_of_scheduled_times_with_runs_of_the_state() -> None:
    history = a_history(RunStatus.FAILED, RunStatus.SKIPPED)
    retry = a_run(an_id(90), RunStatus.SUCCESS, scheduled_at=after(0.5), ended_at=NOON)
    recorded = a_run(an_id(1), RunStatus.FAILED, scheduled_at=after(1), ended_at=NOON)
    state = a_job_state(latest_run_id="r", unrecorded=(recorded, retry))
    outcomes = recent_runs(history).of_job(state, NOON)
    assert [(run.status, run.run_id) for run in outcomes.recent] == [
        (RunStatus.FAILED, an_id(1)),
        (RunStatus.SUCCESS, an_id(90)),
        (RunStatus.SKIPPED, an_id(0)),
    ]


class Rows:
    """The newest runs of a job in its row. It counts its reads."""

    def __init__(self, rows: Mapping[JobKey, Sequence[RecentRun]]) -> None:
        self.rows, self.reads = rows, 0

    def recent_runs(self, job_keys: Sequence[JobKey]) -> Mapping[JobKey, Sequence[RecentRun]]:
        self.reads += 1
        return {key: self.rows[key] for key in job_keys if key in self.rows}


@pytest.mark.parametrize("has_rows", [True, False])
def test_list_reads_outcomes_of_rows_at_once_or_of_the_history(has_rows: bool) -> None:
    clock = ManualClock(NOON)
    memory = Memory(clock)
    state = a_job_state(latest_run_id=an_id(5))
    run = a_run(an_id(5), RunStatus.SUCCESS, started_at=NOON, attempt_at=NOON, ended_at=after(3))
    memory.job_states.put_definitions([a_definition_row()])
    assert memory.job_states.swap([Swap(state, 0)]) == [True]
    memory.history.put_runs([a_row(run.run_id, run=run)])
    rows = Rows({JobKey("acme", state.job_id): [a_success(1, 9)]}) if has_rows else None
    queries = job_queries(memory.ports, clock, cast(Monitor, None), listed_runs=rows)
    (view,) = finish(queries.jobs("acme", JobQuery(), 10, None)).items
    assert view.outcomes.usual_duration == timedelta(seconds=9 if has_rows else 3)
    assert rows is None or rows.reads == 1
    assert queries.job("acme", state.job_id).outcomes.usual_duration == timedelta(seconds=3)
