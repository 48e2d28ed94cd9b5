"""Reads what the overview needs, with bounded reads."""

from datetime import datetime, timedelta

from punctual.domain.job_state import JobStatus
from punctual.domain.overview import (
    MAX_SILENCE,
    LateRuns,
    LimitUse,
    OpenFailures,
    OverduePauses,
    Overview,
    Situation,
    overview,
)
from punctual.domain.run import MAX_START_DELAY, waits_too_long
from punctual.engine.ports.lists.job_index import JobFilters, JobHealth, JobQuery
from punctual.engine.ports.monitor import Health, Stats
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.overview.failures import FailureQueries
from punctual.engine.queries.slices import Sliced

MAX_OVERVIEW_JOBS = 100  # late jobs, and jobs paused for too long, that are counted
NEXT_START_RANGE = timedelta(days=31)
ACTIVE_STATUSES = (JobStatus.SCHEDULED, JobStatus.PAUSED)
_LATE = JobQuery(JobFilters(health=JobHealth.LATE))
_PAUSED = JobFilters(status=frozenset({JobStatus.PAUSED.value}))


class OverviewQueries:
    def __init__(self, queries: JobQueries, failures: FailureQueries) -> None:
        self._queries = queries
        self._failures = failures

    def read(self, tenant: str) -> Sliced[Overview]:
        now, stats, health = (
            self._queries.now(),
            self._queries.stats(tenant),
            self._queries.health(),
        )
        counts = self._failures.counts(tenant)
        late = yield from self._late_runs(tenant, now)
        pauses = yield from self._overdue_pauses(tenant, now)
        coming = yield from self._queries.upcoming(tenant, now, now + NEXT_START_RANGE, 1, None)
        return overview(
            Situation(
                now=now,
                active_jobs=sum(stats.jobs.get(status.value, 0) for status in ACTIVE_STATUSES),
                all_jobs=sum(stats.jobs.values()),
                late=late,
                failures=OpenFailures(
                    counts.unacknowledged,
                    counts.acknowledged,
                    counts.unacknowledged_since,
                    counts.acknowledged_since,
                    counts.has_more,
                ),
                pauses=pauses,
                limits=_limit_uses(stats),
                is_planner_silent=_is_planner_silent(health, now),
                planner_at=health.planner_heartbeat,
                executors_at=max(
                    (
                        executor["last_heartbeat"]
                        for executor in stats.executors
                        if executor["running"] and executor["last_heartbeat"] is not None
                    ),
                    default=None,
                ),
                next_start_at=min((occurrence.at for occurrence in coming.items), default=None),
            )
        )

    def _late_runs(self, tenant: str, now: datetime) -> Sliced[LateRuns]:
        states, has_more = yield from self._queries.listed_states(
            tenant, _LATE, MAX_OVERVIEW_JOBS, now
        )
        due_times = [
            run.due_at for state in states for run in state.runs if waits_too_long(run, now)
        ]
        return LateRuns(len(states), has_more, min(due_times, default=None))

    def _overdue_pauses(self, tenant: str, now: datetime) -> Sliced[OverduePauses]:
        """Return the jobs that are paused past the time to resume. Their timer should end this."""
        query = JobQuery(_PAUSED._replace(pause_ends_before=now - MAX_START_DELAY))
        states, has_more = yield from self._queries.listed_states(
            tenant, query, MAX_OVERVIEW_JOBS, now
        )
        ends = [
            state.pause.until
            for state in states
            if state.pause is not None and state.pause.until is not None
        ]
        return OverduePauses(len(ends), min(ends, default=None), has_more)


def _is_planner_silent(health: Health, now: datetime) -> bool:
    """Return whether no word came for too long after the planner should have spoken."""
    heartbeat = health.planner_heartbeat
    return health.status == "down" or (
        heartbeat is not None and now - heartbeat > health.planner_interval + MAX_SILENCE
    )


def _limit_uses(stats: Stats) -> list[LimitUse]:
    return [
        LimitUse(str(limit["limit"]), float(limit["used"]), float(limit["allowed"]))
        for limit in stats.limits
    ]
