"""Periodic work of the node: remove expired rows, walk over all job states, sweep late timers."""

from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.clock import ClockReading
from punctual.engine.commands.artifact_cleanup import ArtifactCleanup
from punctual.engine.commands.job_names import JobNames
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.late_timers import LateTimerSweeper
from punctual.engine.dispatch.reconciler import TIMER_CHECK_DELAY, Reconciler, ReconcilerPage
from punctual.engine.ports.log import Log
from punctual.engine.ports.wakeups import WakeUps
from punctual.node.files.blobs import PayloadCursor
from punctual.node.sqlite.store import Store

# All times are seconds of the steady clock.
PURGE_SECONDS = 60.0
NEXT_PURGE_SECONDS = 0.2  # while more rows are expired
DAY_SECONDS = 86_400.0
ARTIFACT_WALK_SECONDS = 3_600.0
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
        artifact_cleanup: ArtifactCleanup,
        log: Log,
        steady: float,
    ) -> None:
        self._store = store
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._artifact_cleanup = artifact_cleanup
        self._next_artifacts_steady = steady + WALK_PAUSE_SECONDS
        self._artifacts_cursor: str | None = None
        self._log = log
        self._next_purge_steady = steady + PURGE_SECONDS
        self._next_walk_steady = steady + WALK_PAUSE_SECONDS
        self._following_walk_steady = steady + DAY_SECONDS  # the walk after that
        self._walk_cursor: str | None = None
        self._swept_steady = steady
        self._sweep_cursor: datetime | None = None
        self._next_orphans_steady = steady + WALK_PAUSE_SECONDS
        self._orphans_cursor: PayloadCursor | None = None

    @property
    def next_step_steady(self) -> float:
        return min(
            self._next_purge_steady,
            self._next_walk_steady,
            self._next_orphans_steady,
            self._next_artifacts_steady,
        )

    def walk_soon(self, steady: float) -> None:
        """Start a walk over all job states soon, although the last walk was less than a day ago."""
        self._walk_cursor, self._next_walk_steady = None, steady + WALK_PAUSE_SECONDS

    def run_due(self, reading: ClockReading) -> None:
        if self._store.damage.has_lost_timer:
            self._store.damage.has_lost_timer = False
            self._schedule_walk_by(reading.steady + LOST_TIMER_SECONDS)
        if reading.steady >= self._next_purge_steady:
            has_more = self._store.purge(reading.wall, PURGE_BATCH_ROWS)
            self._next_purge_steady = reading.steady + (
                NEXT_PURGE_SECONDS if has_more else PURGE_SECONDS
            )
            if self._sweep_cursor is not None or reading.steady - self._swept_steady >= DAY_SECONDS:
                self._sweep_slice(reading.steady)
        if reading.steady >= self._next_walk_steady:
            self._walk_slice(reading.steady)
        if reading.steady >= self._next_orphans_steady:
            self._remove_orphans(reading)
        if reading.steady >= self._next_artifacts_steady:
            self._clean_artifacts(reading.steady)

    def _clean_artifacts(self, steady: float) -> None:
        """Clean a page of artifacts. A walk begins at each start and then each hour."""
        try:
            with self._store.transaction():
                cleaned = self._artifact_cleanup.step(self._artifacts_cursor)
        except Unavailable as error:  # due work must not wait for the files
            self._log("artifacts_not_walked", error=error.message)
            self._next_artifacts_steady = steady + PURGE_SECONDS
            return
        self._artifacts_cursor = cleaned.cursor
        self._next_artifacts_steady = steady + (
            ARTIFACT_WALK_SECONDS if cleaned.cursor is None else WALK_PAUSE_SECONDS
        )
        if cleaned.removed:
            self._log("artifacts_removed", artifacts=cleaned.removed)

    def _remove_orphans(self, reading: ClockReading) -> None:
        """Remove a slice of payloads without a row.

        A walk begins at each start and then each day.
        """
        try:
            removed, self._orphans_cursor = self._store.remove_orphans(
                self._orphans_cursor, reading.wall
            )
        except Unavailable as error:  # due work must not wait for the files
            self._log("payloads_not_walked", error=error.message)
            self._next_orphans_steady = reading.steady + PURGE_SECONDS
            return
        self._next_orphans_steady = reading.steady + (
            DAY_SECONDS if self._orphans_cursor is None else WALK_PAUSE_SECONDS
        )
        if removed:
            self._log("payloads_without_row_removed", payloads=removed)

    def _schedule_walk_by(self, steady: float) -> None:
        """Begin another walk by `steady`. A walk that is in progress may have passed the job."""
        self._following_walk_steady = min(self._following_walk_steady, steady)
        if self._walk_cursor is None:
            self._next_walk_steady = min(self._next_walk_steady, steady)

    def _walk_slice(self, steady: float) -> None:
        if self._following_walk_steady <= steady:
            self._following_walk_steady = steady + DAY_SECONDS
        with self._store.transaction():
            walk = self._reconciler.step(self._walk_cursor, WALK_PAGE_SIZE)
        self._walk_cursor = walk.cursor
        self._next_walk_steady = (
            self._following_walk_steady if walk.cursor is None else steady + WALK_PAUSE_SECONDS
        )
        if walk.repaired_keys:
            self._log("reconciler_mended", jobs=len(walk.repaired_keys))
        self._log_names(walk)

    def _log_names(self, walk: ReconcilerPage) -> None:
        if walk.restored_names:
            self._log("names_restored", jobs=len(walk.restored_names))
        if walk.shared_names:
            self._log("names_shared", jobs=len(walk.shared_names))
        if walk.removed_names:
            self._log("names_removed", names=len(walk.removed_names))

    def _sweep_slice(self, steady: float) -> None:
        with self._store.transaction():
            sweep = self._sweeper.step(self._sweep_cursor)
        self._sweep_cursor, self._swept_steady = sweep.cursor, steady
        if sweep.timer_count:
            self._log("timers_behind_watermark", timers=sweep.timer_count)


def build_maintenance(
    store: Store,
    wakeups: WakeUps,
    applier: ChangeApplier,
    evaluator: Evaluator,
    names: JobNames,
    artifact_cleanup: ArtifactCleanup,
    log: Log,
    steady: float,
) -> Maintenance:
    reconciler = Reconciler(
        job_states=store.job_states,
        timers=store.timers,
        partitions=store.partitions,
        wakeups=wakeups,
        applier=applier,
        evaluator=evaluator,
        names=names,
    )
    sweeper = LateTimerSweeper(store.timers, store.partitions, evaluator)
    return Maintenance(store, reconciler, sweeper, artifact_cleanup, log, steady)
