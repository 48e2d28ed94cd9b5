"""A slow walk over all heads: whatever should have a timer and has none is mended, and told."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.head import Head
from punctual.domain.placement import bucket_of
from punctual.domain.run import Status
from punctual.engine.looker import Looker
from punctual.engine.ports import Key, Ports, Timer
from punctual.engine.steps import Steps

LATE = timedelta(minutes=5)
QUEUED_LONG = timedelta(hours=1)
PAGE = 500


class Walked(NamedTuple):
    seen: int
    mended: tuple[Key, ...]
    cursor: str | None


class Reconciler:
    def __init__(self, ports: Ports, steps: Steps, looker: Looker) -> None:
        self._ports = ports
        self._steps = steps
        self._looker = looker

    def step(self, now: datetime, cursor: str | None = None) -> Walked:
        """One page of heads. It should find nothing: what it mends is worth an alarm."""
        begun = self._steps.placing.begin()
        page = self._ports.heads.walk(cursor, PAGE)
        missing = [head for head in page.heads if not head.blank and self._is_forgotten(head, now)]
        missing = self._unchanged(missing)
        keys = tuple(Key(head.tenant, head.job_id) for head in missing)
        timers = [
            self._steps.placing.timer(key, now, head.version, now)
            for key, head in zip(keys, missing, strict=True)
        ]
        self._steps.placing.put(timers, begun)
        self._ports.wake.nudge(timers)
        return Walked(len(page.heads), keys, page.cursor)

    def _unchanged(self, missing: Sequence[Head]) -> list[Head]:
        """A timer goes only after a swap: a head that moved on since it was read says nothing."""
        if not missing:
            return []
        keys = [Key(head.tenant, head.job_id) for head in missing]
        standing = self._ports.heads.load(keys)
        return [
            head
            for key, head in zip(keys, missing, strict=True)
            if key in standing and standing[key].head.version == head.version
        ]

    def _is_forgotten(self, head: Head, now: datetime) -> bool:
        if any(
            run.status is Status.QUEUED and run.sent_at and run.sent_at < now - QUEUED_LONG
            for run in head.runs
        ):
            return True
        if head.timer_at is None:
            return False
        if head.timer_at < now:
            return head.timer_at < now - LATE and not self._stands(head)
        return not self._stands(head)

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
