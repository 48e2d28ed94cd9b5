"""The reconciler: a slow walk over all job states that repairs jobs without a timer."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.identifiers import EPOCH, bucket_of
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, RunStatus
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.changes.plan import load
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.partitions import Buckets
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer, Timers
from punctual.engine.ports.wakeups import WakeUps

LATE = timedelta(minutes=5)
FORGOTTEN = timedelta(hours=1)  # a run is queued, or its lease has expired, for this long
PAGE = 500


class Walked(NamedTuple):
    seen: int
    mended: tuple[Key, ...]
    cursor: str | None
    unread: Sequence[tuple[Key, str]] = ()  # with an unreadable state, each with the reason
    heads: Sequence[JobState] = ()


class Reconciler:
    def __init__(
        self,
        *,
        heads: JobStates,
        timers: Timers,
        buckets: Buckets,
        wake: WakeUps,
        steps: ChangeApplier,
        looker: Evaluator,
    ) -> None:
        self._heads = heads
        self._timers = timers
        self._buckets = buckets
        self._wake = wake
        self._steps = steps
        self._looker = looker

    def step(self, cursor: str | None = None, limit: int | None = None) -> Walked:
        """Repair a page of jobs. A healthy system needs no repair, so each deserves an alarm."""
        begun = self._steps.clocks.read()
        now = begun.wall
        page = self._heads.walk(cursor, limit or PAGE)
        missing = self._forgotten(page.heads, now)
        missing.update(self._abandoned(page.heads, now))
        keys = self._unchanged(missing)
        timers = [
            self._steps.placing.timer(key, at, version, now)
            for key in keys
            for version, at in [missing[key]]
        ]
        self._wake.nudge(self._steps.timers.put(timers, begun))
        return Walked(len(page.heads), keys, page.cursor, page.unread, page.heads)

    def _unchanged(self, missing: Mapping[Key, tuple[int, datetime]]) -> tuple[Key, ...]:
        """Return the jobs that have not changed since they were read.

        A timer is deleted only after a swap. So a missing timer proves nothing for a changed job.
        """
        standing, _ = load(self._heads, list(missing)) if missing else ({}, {})
        return tuple(
            key
            for key, (version, _) in missing.items()
            if key in standing and standing[key].head.version == version
        )

    def _abandoned(
        self, heads: Sequence[JobState], now: datetime
    ) -> dict[Key, tuple[int, datetime]]:
        """Return jobs with a lease that expired long ago, and that no evaluation has ended."""
        suspects = [
            Key(head.tenant, head.job_id)
            for head in heads
            if any(run.held and run.changed_at < now - FORGOTTEN for run in head.runs)
        ]
        return {
            key: (stored.head.version, now)
            for key, stored in (load(self._heads, suspects)[0] if suspects else {}).items()
            if any(
                run.held and _ended(stored.leases.get(run.run_id)) < now - FORGOTTEN
                for run in stored.head.runs
            )
        }

    def _forgotten(
        self, heads: Sequence[JobState], now: datetime
    ) -> dict[Key, tuple[int, datetime]]:
        """Return version and time of the timer to put: now, or at the time of the missing one.

        A missing timer is put again at its own time, because the next evaluation relies on it.
        """
        found: dict[Key, tuple[int, datetime]] = {}
        counted_on: dict[Key, tuple[int, datetime]] = {}
        for head in heads:
            key = Key(head.tenant, head.job_id)
            if head.blank:
                continue
            if any(
                run.status is RunStatus.QUEUED and run.sent_at and run.sent_at < now - FORGOTTEN
                for run in head.runs
            ):
                found[key] = (head.version, now)
            elif head.timer_at is not None and not now - LATE <= head.timer_at < now:
                counted_on[key] = (head.version, head.timer_at)
        absent = self._absent({key: at for key, (_, at) in counted_on.items()})
        found.update((key, counted_on[key]) for key in absent)
        return found

    def _absent(self, moments: Mapping[Key, datetime]) -> set[Key]:
        """Return the jobs without a timer at the expected time.

        The search starts at the present shard of the job. It then covers all shards, because the
        timer may have been put when fewer shards were configured.
        """
        left = self._not_at(moments, None)
        for shard in range(self._buckets.shards()) if left else ():
            left = self._not_at(left, shard)
        return set(left)

    def _not_at(self, moments: Mapping[Key, datetime], shard: int | None) -> dict[Key, datetime]:
        places = [place for key, at in moments.items() for place in self._places(key, at, shard)]
        found = {one.key for one in self._timers.standing(places)} if places else ()
        return {key: at for key, at in moments.items() if key not in found}

    def _places(self, key: Key, at: datetime, shard: int | None) -> list[Timer]:
        here = self._steps.placing.timer(key, at, 0, at)
        if shard == here.shard:
            return []
        here = here if shard is None else here._replace(shard=shard)
        return [here._replace(bucket=bucket) for bucket in {here.bucket, bucket_of(at)}]


def _ended(lease: Lease | None) -> datetime:
    return EPOCH if lease is None else lease.until
