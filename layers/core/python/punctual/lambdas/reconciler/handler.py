"""The daily walk over job states, late timers, orphaned payloads and counts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.control.walk_progress import Progress, WalkProgress
from punctual.aws.dynamodb.jobs.orphans import Orphans
from punctual.aws.dynamodb.lists.job_counts import JobCounts
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.domain.artifacts import ARTIFACT_PREFIX
from punctual.domain.job_state import JobState
from punctual.engine.commands.artifact_cleanup import ArtifactCleanup
from punctual.engine.commands.job_names import JobNames
from punctual.engine.dispatch.late_timers import LateTimerSweeper
from punctual.engine.dispatch.reconciler import Reconciler, ReconcilerPage
from punctual.engine.ports.clock import Clock
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.lambdas.reconciler.job_list_repair import JobListRepair, choose_walked_tenants
from punctual.lambdas.reconciler.recount import MAX_WALK_TIME, Recount
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.run_list import RunListWriter, build_run_list_writer
from punctual.lambdas.telemetry import Metric, Telemetry

WALK_INTERVAL = timedelta(hours=24)
WALK_INTERVAL_TOLERANCE = timedelta(hours=1)  # a rule that fires slightly early must not skip a day
WALK_RESERVE = timedelta(seconds=60)  # reserved time for one page and its repairs
LIST_CURSOR = "#lists "  # of the walk over the rows of a tenant's jobs; it follows the job states
MAX_LOGGED_JOBS = 20  # jobs in one log line


class ReconcilerRun:
    """Runs a part of the walk.

    Progress is stored after each page, and only one invocation continues.
    """

    def __init__(
        self,
        *,
        reconciler: Reconciler,
        sweeper: LateTimerSweeper,
        orphans: Orphans,
        job_list_repair: JobListRepair,
        artifact_cleanup: ArtifactCleanup,
        run_list: RunListWriter,
        progress_store: WalkProgress,
        counters: Counters,
        job_counts: JobCounts,
        clock: Clock,
        log: Telemetry,
    ) -> None:
        self._clock = clock
        self._log = log
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._orphans = orphans
        self._job_list_repair = job_list_repair
        self._artifact_cleanup = artifact_cleanup
        self._run_list = run_list
        self._progress_store = progress_store
        self._counters = counters
        self._job_counts = job_counts
        self._corrected_tenants: list[str] = []  # tenants corrected by this invocation

    def run(self, ends_at: datetime) -> None:
        progress = self._load_progress()
        find_count = 0
        while not progress.is_complete and (now := self._clock()) < ends_at:
            new_finds, next_progress = self._step(progress, now)
            if next_progress is progress:
                break  # counts cannot be corrected yet, so another invocation continues
            find_count += new_finds
            if not self._progress_store.save(next_progress):
                self._log("walk_is_anothers")
                break
            progress = replace(next_progress, step=next_progress.step + 1)
        if self._corrected_tenants:
            fields = {
                "number": len(self._corrected_tenants),
                "tenants": self._corrected_tenants[:MAX_LOGGED_JOBS],
            }
            self._log.error("counts_corrected", **fields)
        self._log.metric(Metric.RECONCILER_FINDS, find_count)
        self._log("walked", over=progress.is_complete, finds=find_count)

    def _load_progress(self) -> Progress:
        now, stored = self._clock(), self._progress_store.read()
        if stored is None:
            return Progress(started_at=now)
        if (
            stored.is_complete
            and now - stored.started_at >= WALK_INTERVAL - WALK_INTERVAL_TOLERANCE
        ):
            return Progress(started_at=now, step=stored.step)
        return stored

    def _step(self, progress: Progress, now: datetime) -> tuple[int, Progress]:
        """Process one page of job states, late timers or payloads, or the counts of one tenant.

        The four stages follow each other in this order.
        """
        recount = Recount(
            self._counters, self._job_counts, progress.started_at, progress.packed_counts
        )
        if progress.state_cursor is not None and progress.state_cursor.startswith(LIST_CURSOR):
            return 0, self._remove_list_rows(progress)
        if not progress.states_done:
            page = self._reconciler.step(progress.state_cursor)
            if (number := self._run_list.write_long_lived(page.states, now)) > 0:
                self._log("long_lived_runs_listed", number=number)
            recount.add(page.states, [key.tenant for key, _ in page.unreadable_jobs], now)
            if page.repaired_keys:
                jobs = [f"{key.tenant}/{key.job_id}" for key in page.repaired_keys]
                self._log.error("reconciler_mended", number=len(jobs), jobs=jobs[:MAX_LOGGED_JOBS])
            for key, error in page.unreadable_jobs:
                ids = {"tenant": key.tenant, "job_id": key.job_id}
                self._log.error("head_unreadable", **ids, error=error)
            if page.cursor is None:
                recount.keep_differing()
                if recount.has_left_out_tenants:
                    self._log("counts_left_out", why="too many tenants")
            self._repair_list_rows(page.states, now)
            tenants = choose_walked_tenants(progress.tenants, page.states, progress.started_at)
            list_cursor = LIST_CURSOR if tenants else None
            next_progress = replace(
                progress,
                state_cursor=list_cursor if page.cursor is None else page.cursor,
                states_done=page.cursor is None and not tenants,
                tenants=tenants,
                packed_counts=recount.packed,
            )
            finds = len(page.repaired_keys) + len(page.unreadable_jobs) + self._log_names(page)
            return finds, next_progress
        if progress.payloads_done:
            return self._correct_counts(progress, recount, now)
        if progress.timers_done:
            return 0, self._remove_orphans(progress, bool(recount.tenants))
        sweep = self._sweeper.step(progress.timer_cursor)
        if sweep.timer_count:
            self._log.error("timers_behind_watermark", timers=sweep.timer_count)
        return sweep.timer_count, replace(
            progress, timer_cursor=sweep.cursor, timers_done=sweep.cursor is None
        )

    def _log_names(self, page: ReconcilerPage) -> int:
        """Log what the walk did for names. Return the number of errors among them.

        A removed row is not an error, since an aborted request or an expired job leaves one.
        """
        if page.restored_names:
            jobs = [f"{key.tenant}/{key.job_id}" for key in page.restored_names]
            self._log.error("names_restored", number=len(jobs), jobs=jobs[:MAX_LOGGED_JOBS])
        if page.shared_names:
            jobs = [f"{key.tenant}/{key.job_id}" for key, _ in page.shared_names]
            self._log.error("names_shared", number=len(jobs), jobs=jobs[:MAX_LOGGED_JOBS])
        if page.removed_names:
            jobs = [f"{row.tenant}/{row.job_id}" for row in page.removed_names]
            self._log("names_removed", number=len(jobs), jobs=jobs[:MAX_LOGGED_JOBS])
        return len(page.restored_names) + len(page.shared_names)

    def _repair_list_rows(self, states: Sequence[JobState], now: datetime) -> None:
        repaired_keys = self._job_list_repair.repair(states, now)
        if repaired_keys:
            jobs = [f"{key.tenant}/{key.job_id}" for key in repaired_keys[:MAX_LOGGED_JOBS]]
            self._log.error("list_rows_repaired", number=len(repaired_keys), jobs=jobs)
            self._log.metric(Metric.LIST_ROWS_REPAIRED, len(repaired_keys))

    def _remove_list_rows(self, progress: Progress) -> Progress:
        """Remove the list rows of one tenant that have no job. The last tenant ends the stage."""
        assert progress.state_cursor is not None
        tenant, *others = progress.tenants
        removed = self._job_list_repair.remove_orphans(
            tenant, progress.state_cursor.removeprefix(LIST_CURSOR) or None
        )
        if removed.row_count:
            self._log("list_rows_removed", number=removed.row_count)
            self._log.metric(Metric.LIST_ROWS_REPAIRED, removed.row_count)
        if removed.cursor is not None:
            return replace(progress, state_cursor=LIST_CURSOR + removed.cursor)
        cursor = LIST_CURSOR if others else None
        return replace(progress, state_cursor=cursor, states_done=not others, tenants=tuple(others))

    def _correct_counts(
        self, progress: Progress, recount: Recount, now: datetime
    ) -> tuple[int, Progress]:
        """Correct the counts of one tenant after `status` has counted all changes of the walk."""
        if not recount.is_due(now):
            return 0, progress
        if now - progress.started_at > MAX_WALK_TIME:
            self._log("counts_left_out", why="the walk took too long")
            return 0, replace(progress, packed_counts=b"", is_complete=True)
        tenant, *others = recount.tenants
        was_wrong = recount.correct(tenant)
        if was_wrong:
            self._corrected_tenants.append(tenant)
        counts = recount.packed if others else b""
        return int(was_wrong), replace(progress, packed_counts=counts, is_complete=not others)

    def _remove_orphans(self, progress: Progress, has_differences: bool) -> Progress:
        """Remove orphaned payloads, then the bytes of deleted artifacts.

        Orphans are not errors, since an aborted request may leave one. The cursor is the name of a
        blob, so it shows which of both comes next.
        """
        cursor = progress.payload_cursor
        if cursor is not None and cursor.startswith(ARTIFACT_PREFIX):
            return self._clean_artifacts(progress, cursor, has_differences)
        removed = self._orphans.remove(cursor)
        if removed.payloads:
            jobs = [f"{key.tenant}/{key.job_id}" for key in removed.jobs]
            self._log("orphans_removed", number=removed.payloads, jobs=jobs[:MAX_LOGGED_JOBS])
        return replace(progress, payload_cursor=removed.cursor or ARTIFACT_PREFIX)

    def _clean_artifacts(self, progress: Progress, cursor: str, has_differences: bool) -> Progress:
        cleaned = self._artifact_cleanup.step(None if cursor == ARTIFACT_PREFIX else cursor)
        if cleaned.removed:
            self._log("artifacts_removed", number=cleaned.removed)
        payloads_done = cleaned.cursor is None
        is_complete = payloads_done and not has_differences
        return replace(
            progress,
            payload_cursor=cleaned.cursor,
            payloads_done=payloads_done,
            is_complete=is_complete,
        )


def continue_walk(runtime: Runtime, remaining_seconds: float) -> None:
    """Continue the walk of the day for `remaining_seconds`, unless it is complete."""
    reconciler = Reconciler(
        job_states=runtime.ports.job_states,
        timers=runtime.ports.timers,
        partitions=runtime.ports.partitions,
        wakeups=runtime.ports.wakeups,
        applier=runtime.applier,
        evaluator=runtime.evaluator,
        names=JobNames(runtime.ports.job_names, runtime.ports.job_states, runtime.new_id),
    )
    sweeper = LateTimerSweeper(runtime.ports.timers, runtime.ports.partitions, runtime.evaluator)
    orphans = Orphans(
        runtime.ports.blobs, runtime.dynamo, runtime.settings.jobs_table, runtime.clock
    )
    ports = runtime.ports
    artifact_cleanup = ArtifactCleanup(
        ports.artifacts,
        ports.blobs,
        ArtifactQueries(ports.artifacts, ports.blobs, ports.job_states),
        runtime.clock,
        runtime.new_id,
    )
    settings = runtime.settings
    job_rows = JobRows(
        runtime.dynamo,
        settings.lists_table,
        settings.list_slots,
        runtime.clock,
        runtime.new_id,
    )
    job_counts = JobCounts(runtime.dynamo, settings.lists_table, settings.list_slots)
    job_list_repair = JobListRepair(
        job_rows,
        DefinitionCache(ports.job_states),
        runtime.dynamo,
        runtime.settings.jobs_table,
    )
    progress_store = WalkProgress(runtime.dynamo, runtime.settings.control_table)
    with runtime.log.invocation():
        ends_at = runtime.clock() + timedelta(seconds=remaining_seconds) - WALK_RESERVE
        counters = Counters(runtime.dynamo, runtime.settings.control_table, runtime.clock)
        walk_of_the_day = ReconcilerRun(
            reconciler=reconciler,
            sweeper=sweeper,
            orphans=orphans,
            job_list_repair=job_list_repair,
            artifact_cleanup=artifact_cleanup,
            run_list=build_run_list_writer(ports),
            progress_store=progress_store,
            counters=counters,
            job_counts=job_counts,
            clock=runtime.clock,
            log=runtime.log,
        )
        walk_of_the_day.run(ends_at)
