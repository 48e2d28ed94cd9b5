"""Periodic work of the node: remove expired rows, walk over all job states, sweep late timers."""

from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.engine.clock import ClockReading
from punctual.engine.dispatch.late_timers import Sweeper
from punctual.engine.dispatch.reconciler import LATE, Reconciler
from punctual.engine.ports.log import Log
from punctual.node.files.blobs import Place
from punctual.node.sqlite.store import Store

# All times are seconds of the steady clock.
OFTEN = 60.0
SOON = 0.2  # while more rows are expired
DAILY = 86_400.0
SLICE = 0.1  # between two slices of the walk over all job states
PURGED = 500
WALKED = 50  # job states of one slice: due work waits about a millisecond for them
AFTER_LOSS = LATE.total_seconds() + 60  # from then on the walk treats a missing timer as lost


class Maintenance:
    """Runs periodic work between steps.

    The first walk begins at the start, so that a node with a daily restart also completes walks.
    """

    def __init__(
        self, store: Store, reconciler: Reconciler, sweeper: Sweeper, log: Log, now: float
    ) -> None:
        self._store = store
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._log = log
        self._keep_at = now + OFTEN
        self._walk_at = now + SLICE
        self._next_walk_at = now + DAILY  # the walk after that
        self._cursor: str | None = None
        self._swept_at = now
        self._sweep: datetime | None = None
        self._files_at = now + SLICE
        self._file: Place | None = None

    @property
    def next_at(self) -> float:
        return min(self._keep_at, self._walk_at, self._files_at)

    def walk_soon(self, now: float) -> None:
        """Start a walk over all job states soon, although the last walk was less than a day ago."""
        self._cursor, self._walk_at = None, now + SLICE

    def keep(self, now: ClockReading) -> None:
        if self._store.damage.lost_timer:
            self._store.damage.lost_timer = False
            self._walk_again_by(now.steady + AFTER_LOSS)
        if now.steady >= self._keep_at:
            more = self._store.purge(now.wall, PURGED)
            self._keep_at = now.steady + (SOON if more else OFTEN)
            if self._sweep is not None or now.steady - self._swept_at >= DAILY:
                self._sweep_on(now.steady)
        if now.steady >= self._walk_at:
            self._walk_on(now.steady)
        if now.steady >= self._files_at:
            self._look_at_files(now)

    def _look_at_files(self, now: ClockReading) -> None:
        """Remove a slice of payloads without a row.

        A walk begins at each start and then each day.
        """
        try:
            removed, self._file = self._store.remove_orphans(self._file, now.wall)
        except Unavailable as error:  # due work must not wait for the files
            self._log("payloads_not_walked", error=error.message)
            self._files_at = now.steady + OFTEN
            return
        self._files_at = now.steady + (DAILY if self._file is None else SLICE)
        if removed:
            self._log("payloads_without_row_removed", payloads=removed)

    def _walk_again_by(self, at: float) -> None:
        """Begin another walk by `at`. A walk that is in progress may have passed the job."""
        self._next_walk_at = min(self._next_walk_at, at)
        if self._cursor is None:
            self._walk_at = min(self._walk_at, at)

    def _walk_on(self, now: float) -> None:
        if self._next_walk_at <= now:
            self._next_walk_at = now + DAILY
        with self._store.work():
            walked = self._reconciler.step(self._cursor, WALKED)
        self._cursor = walked.cursor
        self._walk_at = self._next_walk_at if walked.cursor is None else now + SLICE
        if walked.mended:
            self._log("reconciler_mended", jobs=len(walked.mended))

    def _sweep_on(self, now: float) -> None:
        with self._store.work():
            swept = self._sweeper.step(self._sweep)
        self._sweep, self._swept_at = swept.cursor, now
        if swept.found:
            self._log("timers_behind_watermark", timers=swept.found)
