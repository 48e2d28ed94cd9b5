"""Periodic work of the node: remove expired rows, walk over all job states, sweep late timers."""

from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.engine.clock import ClockReading
from punctual.engine.dispatch.late_timers import LateTimerSweeper
from punctual.engine.dispatch.reconciler import TIMER_CHECK_DELAY, Reconciler
from punctual.engine.ports.log import Log
from punctual.node.files.blobs import PayloadCursor
from punctual.node.sqlite.store import Store

# All times are seconds of the steady clock.
PURGE_SECONDS = 60.0
NEXT_PURGE_SECONDS = 0.2  # while more rows are expired
DAY_SECONDS = 86_400.0
WALK_PAUSE_SECONDS = 0.1  # between two slices of the walk over all job states
PURGE_BATCH_ROWS = 500
WALK_PAGE_SIZE = 50  # job states of one slice: due work waits about a millisecond for them
# From then on the walk treats a missing timer as lost.
LOST_TIMER_SECONDS = TIMER_CHECK_DELAY.total_seconds() + 60


class Maintenance:
    """Runs periodic work between steps.

    The first walk begins at the start, so that a node with a daily restart also completes walks.
    """

    def __init__(
        self,
        store: Store,
        reconciler: Reconciler,
        sweeper: LateTimerSweeper,
        log: Log,
        steady: float,
    ) -> None:
        self._store = store
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._log = log
        self._purge_at = steady + PURGE_SECONDS
        self._walk_at = steady + WALK_PAUSE_SECONDS
        self._next_walk_at = steady + DAY_SECONDS  # the walk after that
        self._walk_cursor: str | None = None
        self._swept_at = steady
        self._sweep_cursor: datetime | None = None
        self._orphans_at = steady + WALK_PAUSE_SECONDS
        self._orphans_cursor: PayloadCursor | None = None

    @property
    def next_at(self) -> float:
        return min(self._purge_at, self._walk_at, self._orphans_at)

    def walk_soon(self, steady: float) -> None:
        """Start a walk over all job states soon, although the last walk was less than a day ago."""
        self._walk_cursor, self._walk_at = None, steady + WALK_PAUSE_SECONDS

    def run_due(self, now: ClockReading) -> None:
        if self._store.damage.has_lost_timer:
            self._store.damage.has_lost_timer = False
            self._schedule_walk_by(now.steady + LOST_TIMER_SECONDS)
        if now.steady >= self._purge_at:
            has_more = self._store.purge(now.wall, PURGE_BATCH_ROWS)
            self._purge_at = now.steady + (NEXT_PURGE_SECONDS if has_more else PURGE_SECONDS)
            if self._sweep_cursor is not None or now.steady - self._swept_at >= DAY_SECONDS:
                self._sweep_slice(now.steady)
        if now.steady >= self._walk_at:
            self._walk_slice(now.steady)
        if now.steady >= self._orphans_at:
            self._remove_orphans(now)

    def _remove_orphans(self, now: ClockReading) -> None:
        """Remove a slice of payloads without a row.

        A walk begins at each start and then each day.
        """
        try:
            removed, self._orphans_cursor = self._store.remove_orphans(
                self._orphans_cursor, now.wall
            )
        except Unavailable as error:  # due work must not wait for the files
            self._log("payloads_not_walked", error=error.message)
            self._orphans_at = now.steady + PURGE_SECONDS
            return
        self._orphans_at = now.steady + (
            DAY_SECONDS if self._orphans_cursor is None else WALK_PAUSE_SECONDS
        )
        if removed:
            self._log("payloads_without_row_removed", payloads=removed)

    def _schedule_walk_by(self, steady: float) -> None:
        """Begin another walk by `steady`. A walk that is in progress may have passed the job."""
        self._next_walk_at = min(self._next_walk_at, steady)
        if self._walk_cursor is None:
            self._walk_at = min(self._walk_at, steady)

    def _walk_slice(self, steady: float) -> None:
        if self._next_walk_at <= steady:
            self._next_walk_at = steady + DAY_SECONDS
        with self._store.transaction():
            walk = self._reconciler.step(self._walk_cursor, WALK_PAGE_SIZE)
        self._walk_cursor = walk.cursor
        self._walk_at = self._next_walk_at if walk.cursor is None else steady + WALK_PAUSE_SECONDS
        if walk.repaired_keys:
            self._log("reconciler_mended", jobs=len(walk.repaired_keys))

    def _sweep_slice(self, steady: float) -> None:
        with self._store.transaction():
            sweep = self._sweeper.step(self._sweep_cursor)
        self._sweep_cursor, self._swept_at = sweep.cursor, steady
        if sweep.timer_count:
            self._log("timers_behind_watermark", timers=sweep.timer_count)
