"""A slow walk over all heads: whatever should have a timer and has none is mended, and told."""

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
        page = self._ports.heads.walk(cursor, PAGE)
        missing = [head for head in page.heads if not head.blank and self._is_forgotten(head, now)]
        keys = tuple(Key(head.tenant, head.job_id) for head in missing)
        timers = [
            self._steps.placing.timer(key, now, head.version, now)
            for key, head in zip(keys, missing, strict=True)
        ]
        self._steps.placing.put(timers)
        self._ports.wake.nudge(timers)
        return Walked(len(page.heads), keys, page.cursor)

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
        before = Timer(wanted.bucket, wanted.shard, head.timer_at, head.tenant, head.job_id, -1)
        for bucket in {wanted.bucket, bucket_of(head.timer_at)}:
            found = self._ports.timers.due(
                bucket, wanted.shard, head.timer_at, before._replace(bucket=bucket), 1
            )
            if any(timer.key == key for timer in found):
                return True
        return False
