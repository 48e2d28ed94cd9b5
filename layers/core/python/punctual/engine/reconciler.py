"""A slow walk over all heads: whatever should have a timer and has none is mended, and told."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.head import Head
from punctual.domain.placement import EPOCH, bucket_of
from punctual.domain.run import Lease, Status
from punctual.engine.looker import Looker
from punctual.engine.plan import load
from punctual.engine.ports import Key, Ports, Timer
from punctual.engine.steps import Steps

LATE = timedelta(minutes=5)
FORGOTTEN = timedelta(hours=1)  # queued, or held under a lease that is over, for so long
PAGE = 500


class Walked(NamedTuple):
    seen: int
    mended: tuple[Key, ...]
    cursor: str | None
    unread: Sequence[tuple[Key, str]] = ()  # whose head nobody can read, and why


class Reconciler:
    def __init__(self, ports: Ports, steps: Steps, looker: Looker) -> None:
        self._ports = ports
        self._steps = steps
        self._looker = looker

    def step(self, now: datetime, cursor: str | None = None) -> Walked:
        """One page of heads. It should find nothing: what it mends is worth an alarm."""
        begun = self._steps.placing.begin()
        page = self._ports.heads.walk(cursor, PAGE)
        missing = {
            Key(head.tenant, head.job_id): (head.version, at)
            for head in page.heads
            if not head.blank and (at := self._forgotten(head, now)) is not None
        }
        missing.update(self._abandoned(page.heads, now))
        keys = self._unchanged(missing)
        timers = [
            self._steps.placing.timer(key, at, version, now)
            for key in keys
            for version, at in [missing[key]]
        ]
        self._steps.placing.put(timers, begun)
        self._ports.wake.nudge(timers)
        return Walked(len(page.heads), keys, page.cursor, page.unread)

    def _unchanged(self, missing: Mapping[Key, tuple[int, datetime]]) -> tuple[Key, ...]:
        """A timer goes only after a swap: a head that moved on since it was read says nothing."""
        standing, _ = load(self._ports.heads, list(missing)) if missing else ({}, {})
        return tuple(
            key
            for key, (version, _) in missing.items()
            if key in standing and standing[key].head.version == version
        )

    def _abandoned(self, heads: Sequence[Head], now: datetime) -> dict[Key, tuple[int, datetime]]:
        """Jobs with a holder whose lease is long over: the look that ends it never came."""
        suspects = [
            Key(head.tenant, head.job_id)
            for head in heads
            if any(run.held and run.changed_at < now - FORGOTTEN for run in head.runs)
        ]
        return {
            key: (stored.head.version, now)
            for key, stored in (load(self._ports.heads, suspects)[0] if suspects else {}).items()
            if any(
                run.held and _ended(stored.leases.get(run.run_id)) < now - FORGOTTEN
                for run in stored.head.runs
            )
        }

    def _forgotten(self, head: Head, now: datetime) -> datetime | None:
        """When a look is to be asked for: now, or at the time of the timer that is not there.

        That one itself is put again: the next look takes what the head counts on for standing.
        """
        if any(
            run.status is Status.QUEUED and run.sent_at and run.sent_at < now - FORGOTTEN
            for run in head.runs
        ):
            return now
        late = head.timer_at is not None and now - LATE <= head.timer_at < now
        return None if head.timer_at is None or late or self._stands(head) else head.timer_at

    def _stands(self, head: Head) -> bool:
        """Whether the timer that the head counts on is there."""
        assert head.timer_at is not None
        key = Key(head.tenant, head.job_id)
        wanted = self._steps.placing.timer(key, head.timer_at, 0, head.timer_at)
        buckets = {wanted.bucket, bucket_of(head.timer_at)}
        return any(
            self._is_at(wanted._replace(bucket=bucket, shard=shard, version=-1))
            for shard in self._places(wanted.shard)
            for bucket in buckets
        )

    def _places(self, now_in_force: int) -> list[int]:
        """Where it would be put now, and then wherever fewer shards may have put it."""
        count = self._ports.buckets.shards()
        return [now_in_force, *(shard for shard in range(count) if shard != now_in_force)]

    def _is_at(self, before: Timer) -> bool:
        found = self._ports.timers.due(before.bucket, before.shard, before.at, before, 1)
        return any(timer.key == before.key for timer in found)


def _ended(lease: Lease | None) -> datetime:
    return EPOCH if lease is None else lease.until
