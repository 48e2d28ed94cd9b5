"""The whole scheduler in one process.

A step does all that is due and returns when the next is due.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from punctual.domain.durations import LEASE
from punctual.domain.job_state import Lane
from punctual.domain.run import Run
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.clock import ClockReading, Clocks
from punctual.engine.commands.jobs import Jobs
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.late_timers import Sweeper
from punctual.engine.dispatch.planner import Planned, Planner
from punctual.engine.dispatch.poller import BATCH, Poller
from punctual.engine.dispatch.reconciler import Reconciler
from punctual.engine.execution.executor import Assignment, Executor, Finished, Unread
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Secrets
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer
from punctual.engine.queries.jobs import JobQueries
from punctual.node.clock import Sets
from punctual.node.files.process_groups import GroupFiles
from punctual.node.limits import Admission, NodeQuotas, node_quotas
from punctual.node.maintenance import Maintenance
from punctual.node.monitor import NodeMonitor
from punctual.node.run_queue.inline_events import InlineRunner
from punctual.node.run_queue.queue import RunQueue
from punctual.node.run_queue.slots import INLINE
from punctual.node.running_tasks import NOT_BEGUN, Ended, RunningTasks
from punctual.node.sqlite.store import Store
from punctual.node.webhooks import Webhooks, no_secrets
from punctual.node.workers import Workers
from punctual.tasks.registry import Registry
from punctual.tasks.script.open_files import is_full

T = TypeVar("T")
# Runs are fired this early, so that runs of one moment start by priority.
AHEAD = timedelta(seconds=2)
PLAN = 20.0  # seconds
QUIET = 0.5  # seconds of idle time from which on a step checkpoints the store
CATCH_UP = 0.2  # seconds between two plans while the watermark is behind


class _Starting(NamedTuple):
    """A claimed run that starts once its claim is on the disk."""

    lane: Lane
    assignment: Assignment
    work: Callable[[], None]


class _WakeUps:
    """Passes new timers to the poller, and keeps kills until the commit."""

    def __init__(self) -> None:
        self.poller: Poller | None = None
        self.kills: list[str] = []

    def nudge(self, timers: Sequence[Timer]) -> None:
        if self.poller is not None:
            self.poller.nudge(timers)

    def kill(self, _key: Key, run_ids: Sequence[str]) -> None:
        self.kills.extend(run_ids)


class Node:
    """The scheduler of one machine.

    `step` and `perform` run on one thread; only tasks have threads of their own.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        groups: GroupFiles,
        clock: Clock,
        monotonic: Callable[[], float],
        new_id: NewId,
        log: Log,
        workers: dict[str, Workers],
        woken: Callable[[], None],
        executor_id: str = "local",
        limits_of: LimitsOf | None = None,
        webhook_secrets: Secrets = no_secrets,
    ) -> None:
        self._store = store
        self._groups = groups
        self._clocks = Clocks(clock, monotonic)
        self._new_id = new_id
        self._log = log
        self._workers = workers
        self._woken = woken
        wakeups = _WakeUps()
        slots = {lane: one.size for lane, one in workers.items()}
        self._admission = Admission(limits_of, clock, store.starts, slots)
        self.queue = RunQueue(store.work(), store.heads, self._admission)
        self.steps = ChangeApplier(
            heads=store.heads,
            timers=store.timers,
            buckets=store.buckets,
            history=store.history,
            messages=self.queue,
            notices=store.notices,
            wake=wakeups,
            clock=clock,
            monotonic=monotonic,
            log=log,
            unit=store.work(),
            alive=self._is_alive,
        )
        self._looker = Evaluator(self.steps, new_id)
        self.executor = Executor(
            heads=store.heads,
            blobs=store.blobs,
            wake=wakeups,
            steps=self.steps,
            new_id=new_id,
            executor_id=executor_id,
        )
        self._inline = InlineRunner(self.executor, store.feed, new_id)
        self.poller = Poller(store.timers, store.buckets, self._looker, AHEAD)
        # All nodes of a folder have one name. The lock on the folder proves that the previous node,
        # which held a partition, has ended.
        self._planner = Planner(store.buckets, "node")
        reconciler = Reconciler(
            heads=store.heads,
            timers=store.timers,
            buckets=store.buckets,
            wake=wakeups,
            steps=self.steps,
            looker=self._looker,
        )
        now = self._clocks.read()
        self._sets = Sets(now)
        sweeper = Sweeper(store.timers, store.buckets, self._looker)
        self._house = Maintenance(store, reconciler, sweeper, log, now.steady)
        self.holding = RunningTasks(self.executor, registry, store.blobs, monotonic)
        self._wakeups = wakeups
        wakeups.poller = self.poller
        self.webhooks = Webhooks(
            unit=store.work(),
            heads=store.heads,
            history=store.history,
            notices=store.notices,
            registry=registry,
            secrets=webhook_secrets,
            log=log,
            woken=woken,
        )
        self.monitor = NodeMonitor(
            store,
            store.minutes,
            self.holding,
            registry,
            executor_id,
            monotonic,
            now.wall,
            store.warnings,
        )
        self.search = JobQueries(
            heads=store.heads,
            history=store.history,
            blobs=store.blobs,
            audit=store.audit,
            monitor=self.monitor,
            clock=clock,
            log=log,
        )
        self.quotas = node_quotas(limits_of, store.count_jobs, clock, monotonic, store.starts)
        self._counted: list[Admission | NodeQuotas] = [self._admission]
        if isinstance(self.quotas, NodeQuotas):
            self._counted.append(self.quotas)
        self.jobs = Jobs(
            heads=store.heads,
            history=store.history,
            blobs=store.blobs,
            receipts=store.receipts,
            wake=wakeups,
            steps=self.steps,
            search=self.search,
            clock=clock,
            new_id=new_id,
            quotas=self.quotas,
        )
        self._ended: deque[Ended] = deque()
        self._starting: list[_Starting] = []
        self._plan_at = now.steady
        self._closing = False

    def start(self) -> None:
        """End the script groups and leases of the previous node.

        The lock on the folder proves that no other process holds a claim.
        """
        killed, unreadable = self._groups.end_all()
        for run_id in unreadable:
            self._log("script_group_unreadable", run_id=run_id)
        with self._store.work():
            keys = self._store.end_all_leases()
        for index in range(0, len(keys), BATCH):
            with self._store.work():
                self._looker.look_at(keys[index : index + BATCH])
        if keys or killed:
            self._log("predecessor_ended", runs=len(keys), groups=killed)

    def perform(self, requests: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """Return the answers to `requests`, carried out in one transaction.

        No answer is given before the commit.
        """
        answers: list[T | Exception] = []
        now = self._clocks.read()
        with self._unit():
            self._see_to_the_clock(now)
            for request in requests:
                try:
                    answers.append(request())
                except Exception as error:
                    answers.append(error)
        return answers

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """Open one transaction. After a rollback, restore what was taken from memory in it."""
        try:
            with self._store.work():
                yield
        except BaseException:
            starting, self._starting = self._starting, []
            for one in starting:
                self.holding.let_go(one.assignment)
            self._wakeups.kills.clear()
            self.poller.start_over()
            for counted in self._counted:
                counted.undo()
            self.monitor.undone()
            raise
        for counted in self._counted:
            counted.keep()
        if self._wakeups.kills:
            self.holding.stop(self._wakeups.kills)
            self._wakeups.kills.clear()

    def _is_alive(self, run: Run) -> bool:
        """Return whether this process holds the run.

        The lock on the folder proves that no other process holds it.
        """
        return self.holding.holds(run)

    @property
    def clock_was_set(self) -> bool:
        """Return whether the wall clock was set, so that a step is due for this alone."""
        return self._sets.is_due(self._clocks.read())

    def _see_to_the_clock(self, now: ClockReading) -> None:
        """React to a change of the wall clock before any decision.

        Otherwise a timer could go into a minute that was closed too early.
        """
        if self._planner.reopen(now.wall):
            self._plan_at = now.steady
            self._house.walk_soon(now.steady)
            self._log("minutes_opened_again", since=now.wall.isoformat())
        by = self._sets.by(now)
        if not by:
            return
        self._log("clock_was_set", seconds=by.total_seconds())
        self._plan_at = now.steady
        self.poller.forget_pauses()
        self.queue.clock_was_set()
        self.monitor.clock_was_set(now.wall)
        if by < timedelta(0):
            self.webhooks.clock_was_set_back(now.wall)

    def step(self) -> float:
        """Do what is due, at most a batch of each kind.

        Return the steady time of the next step, as `next_at`.
        """
        now = self._clocks.read()
        ended = list(self._ended)
        with self._unit():
            self._see_to_the_clock(now)
            self.holding.beat()
            self._plan(now)
            more = self.poller.step(now.wall).handled >= BATCH
            self._write(ended)
            self._start_runs(self._clocks.read().wall)
            self.monitor.write(now)
        for one in ended:
            self._ended.popleft()
            self.holding.let_go(one.assignment)
            self._admission.end(one.assignment.key.tenant, one.finished.run_id)
        starting, self._starting = self._starting, []
        for one_more in starting:
            self._workers[one_more.lane].start(one_more.work)
        now = self._clocks.read()
        self.webhooks.step(now.wall)
        self._house.keep(now)
        now = self._clocks.read()
        self.queue.look_ahead(self._free_slots(), now.wall)
        if more:
            return now.steady
        at = self._work_at()
        if at - now.steady > QUIET:
            self._store.tidy()
        return min(at, self._house.next_at)

    def _free_slots(self) -> list[str]:
        """Return the slots that a run may start in."""
        if self._closing:
            return []
        return [INLINE, *(lane for lane in Lane if self._workers[lane].free > 0)]

    def _plan(self, now: ClockReading) -> None:
        if self._plan_at > now.steady:
            return
        planned: Planned = self._planner.tick(now.wall, self.poller.places)
        for lease in planned.leases:
            self.poller.open(lease)
        self._plan_at = now.steady + (CATCH_UP if planned.behind else PLAN)
        self.monitor.planned(now, planned.watermark)

    def _start_runs(self, now: datetime) -> None:
        """Claim due runs, a batch for each slot that has room."""
        for slot in self._free_slots():
            if slot == INLINE:
                self._note(self._inline.run(self._claim(slot, BATCH, now)))
            else:
                for assignment in self._claim(slot, self._workers[slot].free, now):
                    work = self.holding.take(assignment, self._on_ended)
                    self._starting.append(_Starting(Lane(slot), assignment, work))

    def _claim(self, slot: str, limit: int, now: datetime) -> Sequence[Assignment]:
        messages = self.queue.take(slot, now, limit)
        if not messages:
            return ()
        handed = self.executor.claim(messages)
        self.monitor.started([assignment.run for assignment in handed.granted])
        self._admission.begin(((one.key.tenant, one.run) for one in handed.granted), slot)
        for unread in handed.unread:
            self._give_back(unread)
        claimed = len(handed.granted) + len(handed.unread)
        if claimed < len(messages):
            started = {assignment.run.run_id for assignment in handed.granted}
            refused = [message for message in messages if message.run_id not in started]
            self.queue.postpone(slot, refused, now + LEASE)
        return handed.granted

    def _give_back(self, unread: Unread) -> None:
        """Release a claimed run if its definition or payload cannot be read now."""
        key, full = Key(unread.message.tenant, unread.message.job_id), is_full(unread.error)
        run = unread.run
        self.executor.release(key, run.run_id, run.token, False, waits=True, unstarted=full)

    def _on_ended(self, ended: Ended) -> None:
        """Queue the end of an attempt for the next step.

        A worker's thread calls this; the append of a deque is atomic.
        """
        self._ended.append(ended)
        self._woken()

    def _write(self, ended: Sequence[Ended]) -> None:
        """Finish the runs that ended.

        Release the runs that the shutdown or a lost claim stopped, unless they had ended by
        themselves.
        """
        if not ended:
            return
        given_up = ("SHUTDOWN", "LOST", NOT_BEGUN)
        back = [one for one in ended if one.stopped in given_up and not one.has_ended]
        self._finish([one.finished for one in ended if one not in back])
        for one in back:
            finished = one.finished
            begun = one.stopped != NOT_BEGUN
            self.executor.release(
                finished.key, finished.run_id, finished.token, begun, unstarted=not begun
            )

    def _finish(self, finished: Sequence[Finished]) -> None:
        results = self.executor.finish(finished)
        self._note(
            [
                (one, result.decision.run)
                for one, result in zip(finished, results, strict=True)
                if result.decision is not None and result.decision.run is not None
            ]
        )

    def _note(self, ended: Sequence[tuple[Finished, Run]]) -> None:
        self.monitor.ended([run for _, run in ended])
        for finished, run in ended:
            if not finished.detail.plain:
                self._tell(finished, run)

    def _tell(self, finished: Finished, run: Run) -> None:
        """Log a run that took time or failed.

        Only the first line of its error is logged. The rest is what a script printed, which may be
        anything, and it is kept with the run.
        """
        self._log(
            "run_ended" if run.ended_at else "attempt_failed",
            job_id=finished.key.job_id,
            run_id=finished.run_id,
            attempt=run.attempt if run.ended_at else run.attempt - 1,
            status=run.status.value if run.ended_at else finished.status.value,
            error=finished.detail.error.partition("\n")[0],
        )

    def next_at(self) -> float:
        """Return when the next step is due, by the steady clock."""
        return min(self._work_at(), self._house.next_at)

    def _work_at(self) -> float:
        now = self._clocks.read()
        own = [self.holding.next_beat(), self._plan_at]
        told = [self.poller.next_at(now.wall), self.queue.next_at(), self.webhooks.next_at()]
        moments = [*own, *(now.steady_at(at) for at in told if at is not None)]
        return min(moment for moment in moments if moment is not None)

    def drain(self) -> None:
        """Start no more runs, and let running attempts end."""
        self._closing = True
        self.monitor.close()
        self.webhooks.close()

    def close(self) -> None:
        """Stop the running attempts. Each is LOST, and its run is released for the next start."""
        self.drain()
        self.holding.stop_all()

    @property
    def idle(self) -> bool:
        return not len(self.holding) and not self._ended and self.webhooks.idle
