"""The daily walk over job states, late timers, orphaned payloads and counts."""

from dataclasses import replace
from datetime import datetime, timedelta

from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.control.walk_progress import Progress, WalkProgress
from punctual.aws.dynamodb.jobs.orphans import Orphans
from punctual.engine.dispatch.late_timers import Sweeper
from punctual.engine.dispatch.reconciler import Reconciler
from punctual.lambdas.reconciler.recount import LONGEST, Recount
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric

DAILY = timedelta(hours=24)
SLACK = timedelta(hours=1)  # a rule that fires slightly early must not skip a day
SPARE = timedelta(seconds=60)  # reserved time for one page and its repairs
NAMED = 20  # jobs in one log line


class ReconcilerRun:
    """Runs a part of the walk.

    Progress is stored after each page, and only one invocation continues.
    """

    def __init__(
        self,
        runtime: Runtime,
        reconciler: Reconciler,
        sweeper: Sweeper,
        orphans: Orphans,
        kept: WalkProgress,
        tallies: Counters,
    ) -> None:
        self._clock = runtime.clock
        self._tell = runtime.tell
        self._reconciler = reconciler
        self._sweeper = sweeper
        self._orphans = orphans
        self._kept = kept
        self._tallies = tallies
        self._corrected: list[str] = []  # tenants corrected by this invocation

    def run(self, until: datetime) -> None:
        progress = self._begin()
        finds = 0
        while not progress.over and (now := self._clock()) < until:
            found, following = self._on(progress, now)
            if following is progress:
                break  # counts cannot be corrected yet, so another invocation continues
            finds += found
            if not self._kept.keep(following):
                self._tell("walk_is_anothers")
                break
            progress = replace(following, step=following.step + 1)
        if self._corrected:
            told = {"number": len(self._corrected), "tenants": self._corrected[:NAMED]}
            self._tell.problem("counts_corrected", **told)
        self._tell.measure(Metric.RECONCILER_FINDS, finds)
        self._tell("walked", over=progress.over, finds=finds)

    def _begin(self) -> Progress:
        now, last = self._clock(), self._kept.read()
        if last is None:
            return Progress(started_at=now)
        if last.over and now - last.started_at >= DAILY - SLACK:
            return Progress(started_at=now, step=last.step)
        return last

    def _on(self, progress: Progress, now: datetime) -> tuple[int, Progress]:
        """Process one page of job states, late timers or payloads, or the counts of one tenant.

        The four stages follow each other in this order.
        """
        recount = Recount(self._tallies, progress.started_at, progress.counts)
        if not progress.walked:
            walked = self._reconciler.step(progress.heads)
            recount.add(walked.heads, [key.tenant for key, _ in walked.unread], now)
            if walked.mended:
                jobs = [f"{key.tenant}/{key.job_id}" for key in walked.mended]
                self._tell.problem("reconciler_mended", number=len(jobs), jobs=jobs[:NAMED])
            for key, why in walked.unread:
                ids = {"tenant": key.tenant, "job_id": key.job_id}
                self._tell.problem("head_unreadable", **ids, error=why)
            if walked.cursor is None:
                recount.keep_differing()
                if recount.some_left_out:
                    self._tell("counts_left_out", why="too many tenants")
            following = replace(
                progress,
                heads=walked.cursor,
                walked=walked.cursor is None,
                counts=recount.packed,
            )
            return len(walked.mended) + len(walked.unread), following
        if progress.cleared:
            return self._correct(progress, recount, now)
        if progress.swept:
            return 0, self._clear(progress, bool(recount.tenants))
        swept = self._sweeper.step(progress.sweep)
        if swept.found:
            self._tell.problem("timers_behind_watermark", timers=swept.found)
        return swept.found, replace(progress, sweep=swept.cursor, swept=swept.cursor is None)

    def _correct(self, progress: Progress, recount: Recount, now: datetime) -> tuple[int, Progress]:
        """Correct the counts of one tenant after `status` has counted all changes of the walk."""
        if not recount.is_due(now):
            return 0, progress
        if now - progress.started_at > LONGEST:
            self._tell("counts_left_out", why="the walk took too long")
            return 0, replace(progress, counts=b"", over=True)
        tenant, *others = recount.tenants
        wrong = recount.correct(tenant)
        if wrong:
            self._corrected.append(tenant)
        counts = recount.packed if others else b""
        return int(wrong), replace(progress, counts=counts, over=not others)

    def _clear(self, progress: Progress, differ: bool) -> Progress:
        """Remove orphaned payloads. They are not errors, since an aborted request may leave one."""
        removed = self._orphans.remove(progress.payloads)
        if removed.payloads:
            jobs = [f"{key.tenant}/{key.job_id}" for key in removed.jobs]
            self._tell("orphans_removed", number=removed.payloads, jobs=jobs[:NAMED])
        cleared = removed.cursor is None
        over = cleared and not differ
        return replace(progress, payloads=removed.cursor, cleared=cleared, over=over)


def walk(runtime: Runtime, seconds: float) -> None:
    """Continue the walk of the day for `seconds`, unless it is complete."""
    reconciler = Reconciler(
        heads=runtime.ports.heads,
        timers=runtime.ports.timers,
        buckets=runtime.ports.buckets,
        wake=runtime.ports.wake,
        steps=runtime.steps,
        looker=runtime.looker,
    )
    sweeper = Sweeper(runtime.ports.timers, runtime.ports.buckets, runtime.looker)
    orphans = Orphans(
        runtime.ports.blobs, runtime.dynamo, runtime.settings.jobs_table, runtime.clock
    )
    kept = WalkProgress(runtime.dynamo, runtime.settings.control_table)
    with runtime.tell.told():
        until = runtime.clock() + timedelta(seconds=seconds) - SPARE
        tallies = Counters(runtime.dynamo, runtime.settings.control_table)
        ReconcilerRun(runtime, reconciler, sweeper, orphans, kept, tallies).run(until)
