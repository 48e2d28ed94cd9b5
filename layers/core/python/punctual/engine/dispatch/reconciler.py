"""The reconciler: a slow walk over all job states and the names of recurring jobs.

It repairs jobs without a timer, names without a row, and rows of names that their jobs do not have.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.identifiers import bucket_of
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, RunStatus
from punctual.domain.utc import EPOCH
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.plan import load_states
from punctual.engine.commands.job_names import JobNames
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.job_names import NameRow
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps

TIMER_CHECK_DELAY = timedelta(minutes=5)
ABANDONED_RUN_AGE = timedelta(hours=1)  # a run is queued, or its lease has expired, for this long
RECONCILER_PAGE_SIZE = 500


class ReconcilerPage(NamedTuple):
    job_count: int
    repaired_keys: tuple[JobKey, ...]
    cursor: str | None
    unreadable_jobs: Sequence[
        tuple[JobKey, str]
    ] = ()  # with an unreadable state, each with the reason
    states: Sequence[JobState] = ()
    restored_names: Sequence[JobKey] = ()  # jobs with a name that had no row
    shared_names: Sequence[tuple[JobKey, JobKey]] = ()  # two jobs with one name: damage
    removed_names: Sequence[NameRow] = ()  # rows of names that their jobs do not have


class Reconciler:
    """Puts the missing timers of jobs, a page at a time."""

    def __init__(
        self,
        *,
        job_states: JobStates,
        timers: Timers,
        partitions: Partitions,
        wakeups: WakeUps,
        applier: ChangeApplier,
        evaluator: Evaluator,
        names: JobNames,
    ) -> None:
        self._names = names
        self._job_states = job_states
        self._timers = timers
        self._partitions = partitions
        self._wakeups = wakeups
        self._applier = applier
        self._evaluator = evaluator

    def step(self, cursor: str | None = None, limit: int | None = None) -> ReconcilerPage:
        """Repair a page of jobs. A healthy system needs no repair, so each deserves an alarm.

        Rows of names without a job are the exception: a crash or an expired job leaves one.
        """
        reading = self._applier.clocks.read()
        now = reading.wall
        page = self._job_states.walk(cursor, limit or RECONCILER_PAGE_SIZE)
        missing = self._jobs_without_timer(page.states, now)
        missing.update(self._jobs_with_expired_leases(page.states, now))
        keys = self._unchanged_keys(missing)
        timers = [
            self._applier.timer_placement.timer(key, timer_at, version, now)
            for key in keys
            for version, timer_at in [missing[key]]
        ]
        self._wakeups.notify_new_timers(self._applier.timer_writer.put(timers, reading))
        repairs = self._names.repair(page.states, now)
        return ReconcilerPage(
            len(page.states),
            keys,
            page.cursor,
            page.unreadable,
            page.states,
            repairs.restored,
            repairs.shared,
            self._names.remove_unheld(page.names, now) if page.names else (),
        )

    def _unchanged_keys(self, missing: Mapping[JobKey, tuple[int, datetime]]) -> tuple[JobKey, ...]:
        """Return the jobs that have not changed since they were read.

        A timer is deleted only after a swap. So a missing timer proves nothing for a changed job.
        """
        stored_states, _ = load_states(self._job_states, list(missing)) if missing else ({}, {})
        return tuple(
            key
            for key, (version, _) in missing.items()
            if key in stored_states and stored_states[key].state.version == version
        )

    def _jobs_with_expired_leases(
        self, states: Sequence[JobState], now: datetime
    ) -> dict[JobKey, tuple[int, datetime]]:
        """Return jobs with a lease that expired long ago, and that no evaluation has ended."""
        suspect_keys = [
            JobKey(state.tenant, state.job_id)
            for state in states
            if any(run.is_held and run.changed_at < now - ABANDONED_RUN_AGE for run in state.runs)
        ]
        return {
            key: (stored.state.version, now)
            for key, stored in (
                load_states(self._job_states, suspect_keys)[0] if suspect_keys else {}
            ).items()
            if any(
                run.is_held
                and _lease_end_at(stored.leases.get(run.run_id)) < now - ABANDONED_RUN_AGE
                for run in stored.state.runs
            )
        }

    def _jobs_without_timer(
        self, states: Sequence[JobState], now: datetime
    ) -> dict[JobKey, tuple[int, datetime]]:
        """Return version and time of the timer to put: now, or at the time of the missing one.

        A missing timer is put again at its own time, because the next evaluation relies on it.
        """
        missing: dict[JobKey, tuple[int, datetime]] = {}
        expected: dict[JobKey, tuple[int, datetime]] = {}
        for state in states:
            key = JobKey(state.tenant, state.job_id)
            if state.is_blank:
                continue
            if any(
                run.status is RunStatus.QUEUED
                and run.sent_at
                and run.sent_at < now - ABANDONED_RUN_AGE
                for run in state.runs
            ):
                missing[key] = (state.version, now)
            elif state.timer_at is not None and not now - TIMER_CHECK_DELAY <= state.timer_at < now:
                expected[key] = (state.version, state.timer_at)
        keys_without_timer = self._keys_without_timer(
            {key: timer_at for key, (_, timer_at) in expected.items()}
        )
        missing.update((key, expected[key]) for key in keys_without_timer)
        return missing

    def _keys_without_timer(self, timer_times: Mapping[JobKey, datetime]) -> set[JobKey]:
        """Return the jobs without a timer at the expected time.

        The search starts at the present shard of the job. It then covers all shards, because the
        timer may have been put when fewer shards were configured.
        """
        remaining = self._without_timer_in_shard(timer_times, None)
        for shard in range(self._partitions.shard_count()) if remaining else ():
            remaining = self._without_timer_in_shard(remaining, shard)
        return set(remaining)

    def _without_timer_in_shard(
        self, timer_times: Mapping[JobKey, datetime], shard: int | None
    ) -> dict[JobKey, datetime]:
        expected_timers = [
            expected_timer
            for key, timer_at in timer_times.items()
            for expected_timer in self._expected_timers(key, timer_at, shard)
        ]
        found_keys = (
            {timer.key for timer in self._timers.find_existing(expected_timers)}
            if expected_timers
            else ()
        )
        return {key: timer_at for key, timer_at in timer_times.items() if key not in found_keys}

    def _expected_timers(self, key: JobKey, timer_at: datetime, shard: int | None) -> list[Timer]:
        timer = self._applier.timer_placement.timer(key, timer_at, 0, timer_at)
        if shard == timer.shard:
            return []
        timer = timer if shard is None else timer._replace(shard=shard)
        return [timer._replace(bucket=bucket) for bucket in {timer.bucket, bucket_of(timer_at)}]


def _lease_end_at(lease: Lease | None) -> datetime:
    return EPOCH if lease is None else lease.until
