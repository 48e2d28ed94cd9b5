"""Follows the tasks of ECS: events as they come, and a sweep each minute.

1. An event of ECS, or a request to stop, concerns one task.
2. The sweep renews the leases of all containers first. Only then it asks ECS, so a throttle of ECS
   loses no run.
3. `next_step` decides what follows. Each step may run twice: ends and starts are fenced by the
   token of the claim.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from punctual.aws.ecs.containers import ContainerRows
from punctual.aws.ecs.log_tail import NO_TAIL, LogTails, Tail
from punctual.aws.ecs.task_definitions import TaskDefinitions
from punctual.aws.ecs.tasks import EcsTasks
from punctual.domain.errors import Unavailable
from punctual.domain.run import Reason, RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.changes.run_results import log_key
from punctual.engine.execution.executor import Executor, FinishedAttempt, StartedAttempt
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE, Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.quotas.container_quota import ContainerQuota
from punctual.lambdas.containers.start_files import delete_start_files, start_folder
from punctual.lambdas.telemetry import Telemetry
from punctual.tasks.container.next_step import (
    CONTAINER_LEASE,
    START_CALL_LIMIT,
    STOP_FOR_LOST,
    ClaimStatus,
    Container,
    FinishRun,
    Forget,
    LoseAttempt,
    MarkRunning,
    ReturnRun,
    Step,
    StopTask,
    is_start_id,
    next_step,
    renews_lease,
    report_without_news,
)
from punctual.tasks.container.task_report import (
    ECS_SOURCE,
    STOP_REQUESTED,
    TaskReport,
    parse_report,
)
from punctual.tasks.contract import Outcome
from punctual.tasks.limits import STDERR_TAIL_BYTES

# The sweep of this minute of the day also removes task definitions without use.
CLEANUP_TIME = timedelta(hours=4, minutes=17)
_MINUTE = timedelta(minutes=1)


class ContainersHandler:
    def __init__(
        self,
        *,
        executor: Executor,
        rows: ContainerRows,
        tasks: EcsTasks,
        definitions: TaskDefinitions,
        quota: ContainerQuota,
        tails: LogTails,
        blobs: Blobs,
        clock: Clock,
        log: Telemetry,
    ) -> None:
        self._executor = executor
        self._rows = rows
        self._tasks = tasks
        self._definitions = definitions
        self._quota = quota
        self._tails = tails
        self._blobs = blobs
        self._clock = clock
        self._log = log

    def handle(self, event: Mapping[str, Any]) -> None:
        with self._log.invocation():
            if event.get("source") == ECS_SOURCE:
                self._follow(parse_report(event["detail"]))
            elif event.get("detail-type") == STOP_REQUESTED:
                self._check_runs(event["detail"].get("run_ids", ()))
            else:
                self.sweep()

    def _follow(self, report: TaskReport) -> None:
        """Process one state-change event. A task of another program is left alone."""
        if not is_start_id(report.start_id):
            return
        container = self._rows.load([report.start_id]).get(report.start_id)
        if container is None:
            self._stop_orphan(report)
            return
        if not container.arn:
            self._rows.set_arn(container.start_id, report.arn)
            container = container._replace(arn=report.arn)
        claim = self._renew([container])[0]
        self._take_step(container, next_step(container, report, self._clock(), claim))

    def _stop_orphan(self, report: TaskReport) -> None:
        """Stop a living task without a row: its start began before the claim was given up.

        A frozen environment may call RunTask minutes later. Events of ECS also arrive out of order,
        so the task of a late event may have ended, and its run too.
        """
        present = None if report.is_stopped else self._tasks.describe([report.arn]).get(report.arn)
        if present is not None and not present.is_stopped:
            self._log.error("orphan_stopped", task=report.arn)
            self._tasks.stop(report.arn, f"Punctual: {STOP_FOR_LOST}")

    def _check_runs(self, run_ids: Sequence[str]) -> None:
        """Stop the tasks of these runs if a cancel was requested."""
        containers = [row for row in self._rows.load_all() if row.run_id in run_ids]
        self._check(containers, self._clock())

    def sweep(self) -> None:
        now = self._clock()
        containers = self._rows.load_all()
        self._check(containers, now)
        self._quota.count(
            sum(container.size.cpu_units for container in containers),
            [container.start_id for container in containers],
        )
        if now - now.replace(hour=0, minute=0, second=0, microsecond=0) - CLEANUP_TIME < _MINUTE:
            self._remove_definitions(now)

    def _check(self, containers: Sequence[Container], now: datetime) -> None:
        if not containers:
            return
        renewed = [container for container in containers if renews_lease(container, now)]
        start_ids = [container.start_id for container in renewed]
        claims = dict(zip(start_ids, self._renew(renewed), strict=True))
        known = [container.arn for container in containers if container.arn]
        try:
            reports = self._tasks.describe(known)
            has_news = True
        except Unavailable as error:
            self._log.error("tasks_not_described", tasks=len(known), error=error.message)
            reports, has_news = {}, False
        for container in containers:
            claim = claims.get(container.start_id)
            try:
                self._check_one(container, claim, reports, has_news, now)
            except Unavailable as error:  # one task must not stop the others
                self._log.error(
                    "container_not_checked", run_id=container.run_id, error=error.message
                )

    def _check_one(
        self,
        container: Container,
        claim: ClaimStatus | None,
        reports: Mapping[str, TaskReport],
        has_news: bool,
        now: datetime,
    ) -> None:
        if not container.arn or claim is None:
            self._settle_start(container, now)
            return
        report = reports.get(container.arn) if has_news else report_without_news(container)
        self._take_step(container, next_step(container, report, now, claim))

    def _settle_start(self, container: Container, now: datetime) -> None:
        """Find the task of a start that got no answer, or return its claim.

        While ECS cannot tell, the lease is renewed until the start deadline. Then it ends the run.
        """
        if now < container.requested_at + START_CALL_LIMIT:
            return
        arn = self._tasks.find(container.start_id)
        if arn:
            self._rows.set_arn(container.start_id, arn)
            return
        self._return(container, "ECS has no task of the call")

    def _renew(self, containers: Sequence[Container]) -> list[ClaimStatus]:
        claims = [
            (_key_of(container), container.run_id, container.token) for container in containers
        ]
        return [
            ClaimStatus(
                result.is_held,
                result.cancel_reason is not Reason.NONE,
                result.run is not None and bool(result.run.runner_id),
            )
            for result in self._executor.renew(claims, lease=CONTAINER_LEASE)
        ]

    def _take_step(self, container: Container, step: Step) -> None:
        match step:
            case MarkRunning(at):
                self._mark_running(container, at)
            case StopTask(reason):
                self._stop(container, reason)
            case FinishRun(outcome):
                self._finish(container, outcome)
            case LoseAttempt(error):
                self._lose(container, error)
            case ReturnRun(reason):
                self._return(container, reason)
            case Forget():
                self._log("late_end", run_id=container.run_id, attempt=container.attempt_number)
                self._delete(container)

    def _mark_running(self, container: Container, at: datetime) -> None:
        """Mark the run as RUNNING. The runner of a script does so itself, before user code."""
        if container.is_script:
            self._rows.set_running(container.start_id, at)
            return
        key = _key_of(container)
        started = StartedAttempt(key, container.run_id, container.token, "")
        (result,) = self._executor.start([started])
        if result.decision is not None and not result.is_contended:
            self._rows.set_running(container.start_id, at)
        self._log("container_running", run_id=container.run_id, task=container.arn)

    def _stop(self, container: Container, reason: str) -> None:
        """Note the reason before the call: the end of the task needs it."""
        if not container.stop_reason:
            self._rows.set_stop_reason(container.start_id, reason)
            self._log("container_stopped", run_id=container.run_id, reason=reason)
        self._tasks.stop(container.arn, f"Punctual: {reason}")

    def _finish(self, container: Container, outcome: Outcome) -> None:
        tail = self._read_tail(container)
        key = _key_of(container)
        detail = _detail_of(outcome, tail)
        if tail.data and container.keeps_log:
            name = log_key(key, container.run_id, container.attempt_number)
            self._blobs.put(name, tail.data, TEXT_CONTENT_TYPE)
            detail = replace(
                detail, log_blob=name, log_size=len(tail.data), log_truncated=tail.is_cut
            )
        finished = FinishedAttempt(
            key,
            container.run_id,
            container.token,
            RunStatus(outcome.status),
            outcome.retryable,
            detail,
        )
        (result,) = self._executor.finish([finished])
        self._log(
            "container_ended",
            run_id=container.run_id,
            status=outcome.status,
            exit_code=outcome.exit_code,
        )
        self._forget(container, result)

    def _lose(self, container: Container, error: str) -> None:
        self._log.error("attempt_lost", run_id=container.run_id, error=error)
        result = self._executor.lose_claim(
            _key_of(container), container.run_id, container.token, error
        )
        self._forget(container, result)

    def _return(self, container: Container, reason: str) -> None:
        """Return the run of a container that certainly did not begin. This is no attempt."""
        self._log.error("start_failed", run_id=container.run_id, reason=reason)
        result = self._executor.return_failed_start(
            _key_of(container), container.run_id, container.token, reason
        )
        self._forget(container, result)

    def _forget(self, container: Container, result: Result) -> None:
        """Delete the row after the end is recorded. Otherwise the next sweep repeats the end."""
        if result.effects_done and not result.is_contended and not result.has_failed:
            self._delete(container)

    def _delete(self, container: Container) -> None:
        """Delete what the task read, then its row. After a crash between both, it is repeated.

        A task that ended before the first sweep still holds its processors as a start.
        """
        folder = start_folder(
            container.tenant, container.job_id, container.run_id, container.start_id
        )
        delete_start_files(self._blobs, folder)
        self._quota.release(container.start_id)
        self._rows.delete([container.start_id])

    def _read_tail(self, container: Container) -> Tail:
        """Return the end of the log. A log that cannot be read must not hold up the end."""
        if not container.arn or container.is_script:  # a runner sends the log by its claim
            return NO_TAIL
        try:
            return self._tails.read(container.arn)
        except Unavailable as error:
            self._log.error("log_not_read", run_id=container.run_id, error=error.message)
            return NO_TAIL

    def _remove_definitions(self, now: datetime) -> None:
        removed = self._definitions.deregister_unused(now)
        if removed:
            self._log("definitions_removed", number=removed)


def _key_of(container: Container) -> JobKey:
    return JobKey(container.tenant, container.job_id)


def _detail_of(outcome: Outcome, tail: Tail) -> Detail:
    """Return the result of an attempt. Its error ends with the last lines, as for scripts."""
    error = outcome.error
    if outcome.status == "FAILED" and tail.data:
        lines = tail.data[-STDERR_TAIL_BYTES:].decode(errors="replace").replace("\0", "\ufffd")
        error = f"{error}\n{lines.strip()}"
    return Detail(error=error, exit_code=outcome.exit_code)
