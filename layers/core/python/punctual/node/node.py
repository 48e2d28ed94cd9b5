"""The whole scheduler in one process.

A step does all that is due and returns when the next is due.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from punctual.domain.job_state import Lane
from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import Run
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.clock import ClockReading, Clocks
from punctual.engine.commands.artifact_cleanup import ArtifactCleanup
from punctual.engine.commands.job_names import JobNames
from punctual.engine.commands.jobs import Jobs
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.planner import Planner, PlanResult
from punctual.engine.dispatch.poller import MAX_TIMER_BATCH, Poller
from punctual.engine.execution.executor import Assignment, Executor, FinishedAttempt, UnreadableRun
from punctual.engine.operations.commands import OperationCommands
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import WebhookSecrets
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.ports.rows import JobKey
from punctual.engine.quotas.used_limits import UsedLimits
from punctual.node.background.bulk_operations import BulkOperations, build_bulk_operations
from punctual.node.background.maintenance import Maintenance, build_maintenance
from punctual.node.clock import ClockChangeDetector
from punctual.node.files.artifacts import ArtifactFiles, artifact_commands
from punctual.node.files.process_groups import GroupFiles
from punctual.node.inline_events import InlineRunner
from punctual.node.limits import Admission, NodeQuotas, node_quotas, used_limits
from punctual.node.monitor import NodeMonitor
from punctual.node.run_queue import RunQueue
from punctual.node.running_tasks import NOT_BEGUN, EndedAttempt, RunningTasks, log_ended_run
from punctual.node.script_memory import UNLIMITED_MEMORY_MB, ScriptMemory
from punctual.node.sqlite.job_queries import build_job_queries
from punctual.node.sqlite.state_rows import INLINE_SLOT
from punctual.node.sqlite.store import Store
from punctual.node.wakeups import NodeWakeUps
from punctual.node.webhooks import Webhooks, no_webhook_secrets
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.script.open_files import is_file_limit

T = TypeVar("T")
# Runs are fired this early, so that runs of one moment start by priority.
FIRE_AHEAD = timedelta(seconds=2)
PLAN_SECONDS = 20.0
IDLE_CHECKPOINT_SECONDS = 0.5  # an idle time of this length starts with a checkpoint
CATCH_UP_PLAN_SECONDS = 0.2  # seconds between two plans while past minutes remain


class _ClaimedTask(NamedTuple):
    """A claimed run that starts once its claim is on the disk."""

    lane: Lane
    assignment: Assignment
    work: Callable[[], None]


class Node:
    """The scheduler of one machine.

    `step` and `perform` run on one thread; only tasks have threads of their own.
    """

    def __init__(
        self,
        store: Store,
        attempt_runner: AttemptRunner,
        groups: GroupFiles,
        clock: Clock,
        monotonic: Callable[[], float],
        new_id: NewId,
        log: Log,
        workers: dict[str, Workers],
        wake: Callable[[], None],
        executor_id: str = "local",
        limits_of: LimitsOf | None = None,
        webhook_secrets: WebhookSecrets = no_webhook_secrets,
        artifact_files: ArtifactFiles | None = None,
        script_memory_mb: int = UNLIMITED_MEMORY_MB,
    ) -> None:
        self._store = store
        self._artifact_files = artifact_files
        self._groups = groups
        self._clocks = Clocks(clock, monotonic)
        self._new_id = new_id
        self._log = log
        self._workers = workers
        self._wake = wake
        self._wakeups = NodeWakeUps()
        self._ended_attempts: deque[EndedAttempt] = deque()
        self._claimed_tasks: list[_ClaimedTask] = []
        self._closing = False
        reading = self._clocks.read()
        self._clock_changes = ClockChangeDetector(reading)
        self._next_plan_steady = reading.steady
        self.script_memory = ScriptMemory(script_memory_mb)
        slots_by_lane = {lane: pool.size for lane, pool in workers.items()}
        self._admission = Admission(limits_of, clock, store.starts, slots_by_lane)
        self.queue = RunQueue(
            store.transaction(), store.job_states, self._admission, self.script_memory
        )
        self.applier = self._build_applier(clock, monotonic)
        self._evaluator = Evaluator(self.applier, new_id)
        self._names = JobNames(store.job_names, store.job_states, new_id)
        self.executor = self._build_executor(executor_id)
        self._inline_runner = InlineRunner(self.executor, store.feed, store.find_secret, new_id)
        self.poller = Poller(store.timers, store.partitions, self._evaluator, FIRE_AHEAD)
        self._wakeups.poller = self.poller
        # All nodes of a folder have one name: the lock proves that the previous one has ended.
        self._planner = Planner(store.partitions, "node")
        self.artifacts, cleanup = artifact_commands(store, clock, new_id, limits_of)
        self._maintenance = self._build_maintenance(cleanup, reading.steady)
        self.running_tasks = RunningTasks(self.executor, attempt_runner, store.blobs, monotonic)
        self.webhooks = self._build_webhooks(attempt_runner, webhook_secrets)
        self.quotas = node_quotas(limits_of, store.count_jobs, clock, monotonic, store.starts)
        self._limit_counters: list[Admission | NodeQuotas | ScriptMemory] = [self.script_memory]
        if isinstance(self.quotas, NodeQuotas):
            self._limit_counters += [self._admission, self.quotas]
        uses = used_limits(limits_of, store.artifacts, self._admission, self.quotas)
        self.monitor = self._build_monitor(
            attempt_runner, executor_id, monotonic, reading.wall, uses
        )
        self.search = build_job_queries(
            store, self.monitor, clock, log, self.queue.waits_for_memory
        )
        self.jobs = self._build_jobs(clock)
        self._bulk, self.operations = self._build_bulk_operations(clock, reading.steady)

    def _build_applier(self, clock: Clock, monotonic: Callable[[], float]) -> ChangeApplier:
        return ChangeApplier(
            job_states=self._store.job_states,
            timers=self._store.timers,
            partitions=self._store.partitions,
            history=self._store.history,
            run_queue=self.queue,
            notifications=self._store.notifications,
            wakeups=self._wakeups,
            clock=clock,
            steady=monotonic,
            log=self._log,
            transaction=self._store.transaction(),
            # The lock on the folder proves that no other process holds the run.
            holds_run=lambda run: self.running_tasks.holds_run(run),
        )

    def _build_executor(self, executor_id: str) -> Executor:
        return Executor(
            job_states=self._store.job_states,
            blobs=self._store.blobs,
            wakeups=self._wakeups,
            applier=self.applier,
            new_id=self._new_id,
            executor_id=executor_id,
        )

    def _build_webhooks(self, attempt_runner: AttemptRunner, secrets: WebhookSecrets) -> Webhooks:
        return Webhooks(
            transaction=self._store.transaction(),
            job_states=self._store.job_states,
            history=self._store.history,
            notifications=self._store.notifications,
            attempt_runner=attempt_runner,
            secrets=secrets,
            log=self._log,
            wake=self._wake,
        )

    def _build_maintenance(self, cleanup: ArtifactCleanup, steady: float) -> Maintenance:
        return build_maintenance(
            self._store,
            self._wakeups,
            self.applier,
            self._evaluator,
            self._names,
            cleanup,
            self._log,
            steady,
        )

    def _build_bulk_operations(
        self, clock: Clock, steady: float
    ) -> tuple[BulkOperations, OperationCommands]:
        return build_bulk_operations(
            self._store,
            self.jobs,
            self.search,
            self.applier,
            self.quotas,
            self._names,
            self._transaction,
            clock,
            self._new_id,
            self._log,
            steady,
        )

    def _build_monitor(
        self,
        attempt_runner: AttemptRunner,
        executor_id: str,
        monotonic: Callable[[], float],
        since: datetime,
        uses: UsedLimits,
    ) -> NodeMonitor:
        return NodeMonitor(
            store=self._store,
            minute_store=self._store.minutes,
            running_tasks=self.running_tasks,
            attempt_runner=attempt_runner,
            executor_id=executor_id,
            monotonic=monotonic,
            since=since,
            warnings=self._store.warnings,
            script_queue=self.queue,
            used_limits=uses,
        )

    def _build_jobs(self, clock: Clock) -> Jobs:
        return Jobs(
            job_states=self._store.job_states,
            history=self._store.history,
            blobs=self._store.blobs,
            receipts=self._store.receipts,
            wakeups=self._wakeups,
            applier=self.applier,
            queries=self.search,
            clock=clock,
            new_id=self._new_id,
            names=self._names,
            quotas=self.quotas,
            artifacts=self.artifacts,
        )

    def start(self) -> None:
        """End the script groups and leases of the previous node.

        The lock on the folder proves that no other process holds a claim.
        """
        killed_groups, unreadable_run_ids = self._groups.end_all()
        for run_id in unreadable_run_ids:
            self._log("script_group_unreadable", run_id=run_id)
        with self._store.transaction():
            keys = self._store.end_all_leases()
        for index in range(0, len(keys), MAX_TIMER_BATCH):
            with self._store.transaction():
                self._evaluator.evaluate_jobs(keys[index : index + MAX_TIMER_BATCH])
        if keys or killed_groups:
            self._log("predecessor_ended", runs=len(keys), groups=killed_groups)

    def perform(self, requests: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """Return the answers to `requests`, carried out in one transaction.

        No answer is given before the commit.
        """
        answers: list[T | Exception] = []
        reading = self._clocks.read()
        with self._transaction():
            self._handle_clock_change(reading)
            for request in requests:
                try:
                    answers.append(request())
                except Exception as error:
                    answers.append(error)
        return answers

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Open one transaction. After a rollback, restore what was taken from memory in it."""
        try:
            with self._store.transaction():
                yield
        except BaseException:
            claimed_tasks, self._claimed_tasks = self._claimed_tasks, []
            for task in claimed_tasks:
                self.running_tasks.remove(task.assignment)
            self._wakeups.stopped_run_ids.clear()
            self.poller.reread_all()
            for counter in self._limit_counters:
                counter.on_rollback()
            self.monitor.on_rollback()
            raise
        for counter in self._limit_counters:
            counter.on_commit()
        if self._wakeups.stopped_run_ids:
            self.running_tasks.cancel_runs(self._wakeups.stopped_run_ids)
            self._wakeups.stopped_run_ids.clear()

    @property
    def has_clock_change(self) -> bool:
        """Return whether the wall clock was set, so that a step is due for this alone."""
        return self._clock_changes.has_change(self._clocks.read())

    def _handle_clock_change(self, reading: ClockReading) -> None:
        """React to a change of the wall clock before any decision.

        Otherwise a timer could go into a minute that was closed too early.
        """
        if self._planner.reopen(reading.wall):
            self._next_plan_steady = reading.steady
            self._maintenance.walk_soon(reading.steady)
            self._log("minutes_opened_again", since=reading.wall.isoformat())
        change = self._clock_changes.detect(reading)
        if not change:
            return
        self._log("clock_was_set", seconds=change.total_seconds())
        self._next_plan_steady = reading.steady
        self.poller.clear_delays()
        self.queue.on_clock_set()
        self.monitor.on_clock_set(reading.wall)
        if change < timedelta(0):
            self.webhooks.on_clock_set_back(reading.wall)

    def step(self) -> float:
        """Do what is due, at most a batch of each kind.

        Return the steady time of the next step, as `next_step_steady` does.
        """
        reading = self._clocks.read()
        ended_attempts = list(self._ended_attempts)
        with self._transaction():
            self._handle_clock_change(reading)
            self.running_tasks.renew()
            self._plan(reading)
            has_more = self.poller.step(reading.wall).timer_count >= MAX_TIMER_BATCH
            self._finish_attempts(ended_attempts)
            self._start_runs(self._clocks.read().wall)
            self.monitor.write(reading)
        for ended in ended_attempts:
            self._ended_attempts.popleft()
            self.running_tasks.remove(ended.assignment)
            self._admission.remove_ended(ended.assignment.key.tenant, ended.finished.run_id)
            self.script_memory.release(ended.finished.run_id, ended.finished.token)
        claimed_tasks, self._claimed_tasks = self._claimed_tasks, []
        for task in claimed_tasks:
            self._workers[task.lane].start(task.work)
        reading = self._clocks.read()
        self.webhooks.step(reading.wall)
        self._maintenance.run_due(reading)
        self._bulk.run_due(reading)
        reading = self._clocks.read()
        self.queue.update_next_at(self._free_slots(), reading.wall)
        if has_more:
            return reading.steady
        next_work_steady = self._next_work_steady()
        if next_work_steady - reading.steady > IDLE_CHECKPOINT_SECONDS:
            self._store.checkpoint()
        return min(next_work_steady, self._next_background_steady)

    def _free_slots(self) -> list[str]:
        """Return the slots that a run may start in."""
        if self._closing:
            return []
        return [INLINE_SLOT, *(lane for lane in Lane if self._workers[lane].free > 0)]

    def _plan(self, reading: ClockReading) -> None:
        if self._next_plan_steady > reading.steady:
            return
        plan_result: PlanResult = self._planner.tick(reading.wall, self.poller.leased_partitions)
        for lease in plan_result.leases:
            self.poller.add_partition(lease)
        self._next_plan_steady = reading.steady + (
            CATCH_UP_PLAN_SECONDS if plan_result.has_backlog else PLAN_SECONDS
        )
        self.monitor.note_plan(reading, plan_result.watermark)

    def _start_runs(self, now: datetime) -> None:
        """Claim due runs, a batch for each slot that has room."""
        for slot in self._free_slots():
            if slot == INLINE_SLOT:
                self._record_ended_runs(
                    self._inline_runner.run(self._claim(slot, MAX_TIMER_BATCH, now))
                )
            else:
                for assignment in self._claim(slot, self._workers[slot].free, now):
                    if self._artifact_files is not None:
                        self._artifact_files.find(assignment)
                    work = self.running_tasks.prepare_work(assignment, self._on_ended)
                    self._claimed_tasks.append(_ClaimedTask(Lane(slot), assignment, work))

    def _claim(self, slot: str, limit: int, now: datetime) -> Sequence[Assignment]:
        messages = self.queue.find_due(slot, now, limit)
        if not messages:
            return ()
        claim_result = self.executor.claim(messages)
        claimed = claim_result.claimed
        self.monitor.count_started([assignment.run for assignment in claimed])
        self._admission.add_started(((task.key.tenant, task.run) for task in claimed), slot)
        self.script_memory.reserve_for(claimed)
        for unreadable_run in claim_result.payload_unavailable:
            self._return_unreadable(unreadable_run)
        claimed_count = len(claim_result.claimed) + len(claim_result.payload_unavailable)
        if claimed_count < len(messages):
            claimed_run_ids = {assignment.run.run_id for assignment in claim_result.claimed}
            unclaimed = [message for message in messages if message.run_id not in claimed_run_ids]
            self.queue.postpone(slot, unclaimed, now + RUN_LEASE)
        return claim_result.claimed

    def _return_unreadable(self, unreadable_run: UnreadableRun) -> None:
        """Return the claim of a run with an unreadable definition or payload."""
        message, run = unreadable_run.message, unreadable_run.run
        key = JobKey(message.tenant, message.job_id)
        is_node_full = is_file_limit(unreadable_run.error)
        self.executor.return_claim(
            key, run.run_id, run.token, False, with_delay=True, never_started=is_node_full
        )

    def _on_ended(self, ended_attempt: EndedAttempt) -> None:
        """Queue the end of an attempt for the next step.

        A worker's thread calls this; the append of a deque is atomic.
        """
        self._ended_attempts.append(ended_attempt)
        self._wake()

    def _finish_attempts(self, ended_attempts: Sequence[EndedAttempt]) -> None:
        """Finish the runs that ended.

        Return the claims of runs that the shutdown or a lost claim stopped, unless they had ended
        by themselves.
        """
        if not ended_attempts:
            return
        interruptions = ("SHUTDOWN", "LOST", NOT_BEGUN)
        interrupted = [
            ended_attempt
            for ended_attempt in ended_attempts
            if ended_attempt.stop_reason in interruptions and not ended_attempt.ended_by_itself
        ]
        self._finish_runs([ended.finished for ended in ended_attempts if ended not in interrupted])
        for ended_attempt in interrupted:
            finished = ended_attempt.finished
            has_begun = ended_attempt.stop_reason != NOT_BEGUN
            claim = (finished.key, finished.run_id, finished.token)
            self.executor.return_claim(*claim, has_begun, never_started=not has_begun)

    def _finish_runs(self, finished: Sequence[FinishedAttempt]) -> None:
        results = self.executor.finish(finished)
        self._record_ended_runs(
            [
                (finished_run, result.decision.run)
                for finished_run, result in zip(finished, results, strict=True)
                if result.decision is not None and result.decision.run is not None
            ]
        )

    def _record_ended_runs(self, ended_runs: Sequence[tuple[FinishedAttempt, Run]]) -> None:
        self.monitor.count_ended([run for _, run in ended_runs])
        for finished, run in ended_runs:
            if not finished.detail.is_plain:
                log_ended_run(self._log, finished, run)

    def next_step_steady(self) -> float:
        """Return when the next step is due, by the steady clock."""
        return min(self._next_work_steady(), self._next_background_steady)

    @property
    def _next_background_steady(self) -> float:
        return min(self._maintenance.next_step_steady, self._bulk.next_step_steady)

    def _next_work_steady(self) -> float:
        reading = self._clocks.read()
        steady_times = [self.running_tasks.next_renewal_steady(), self._next_plan_steady]
        wall_times = [
            self.poller.next_step_at(reading.wall),
            self.queue.next_at(),
            self.webhooks.next_at(),
        ]
        times = [
            *steady_times,
            *(reading.steady_at(wall_time) for wall_time in wall_times if wall_time is not None),
        ]
        return min(time for time in times if time is not None)

    def drain(self) -> None:
        """Start no more runs, and let running attempts end."""
        self._closing = True
        self.monitor.close()
        self.webhooks.close()

    def close(self) -> None:
        """Stop the running attempts. Each is LOST, and the next start runs it again."""
        self.drain()
        self.running_tasks.stop_all()

    @property
    def is_idle(self) -> bool:
        return not len(self.running_tasks) and not self._ended_attempts and self.webhooks.is_idle
