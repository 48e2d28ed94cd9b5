"""What the node does now and then: remove what has expired, walk over all heads, sweep behind."""

from collections.abc import Callable
from datetime import datetime, timedelta

from punctual.engine.reconciler import LATE, Reconciler
from punctual.engine.sweeper import Sweeper
from punctual.local.store import Store

Log = Callable[..., None]
OFTEN = timedelta(seconds=60)
SOON = timedelta(milliseconds=200)  # while there is more to remove
DAILY = timedelta(hours=24)
PURGED = 500
AFTER_LOSS = LATE + timedelta(minutes=1)  # by then the walk takes a missing timer for lost


class House:
    def __init__(
        self, store: Store, reconciler: Reconciler, sweeper: Sweeper, log: Log, now: datetime
    ) -> None:
        self._store = store
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._log = log
        self._kept_at = now
        self._more = False
        self._walked_at = now
        self._swept_at = now
        self._walk: str | None = None
        self._sweep: datetime | None = None

    @property
    def next_at(self) -> datetime:
        return self._kept_at + (SOON if self._more else OFTEN)

    def keep(self, now: datetime) -> None:
        if now < self.next_at:
            return
        self._kept_at = now
        self._more = self._store.purge(now, PURGED)
        if self._walk is not None or self._walk_is_due(now):
            self._walk_on(now)
        if self._sweep is not None or now - self._swept_at >= DAILY:
            self._sweep_on(now)

    def _walk_is_due(self, now: datetime) -> bool:
        if self._store.damage.lost_timer:
            self._store.damage.lost_timer = False
            self._walked_at = min(self._walked_at, now + AFTER_LOSS - DAILY)
        return now - self._walked_at >= DAILY

    def _walk_on(self, now: datetime) -> None:
        with self._store.work():
            walked = self._reconciler.step(self._walk)
        self._walk, self._walked_at = walked.cursor, now
        if walked.mended:
            self._log("reconciler_mended", jobs=len(walked.mended))

    def _sweep_on(self, now: datetime) -> None:
        with self._store.work():
            swept = self._sweeper.step(self._sweep)
        self._sweep, self._swept_at = swept.cursor, now
        if swept.found:
            self._log("timers_behind_watermark", timers=swept.found)
