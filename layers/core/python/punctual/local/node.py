"""The whole scheduler in one process: a step does all that is due, and says when the next is."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from punctual.domain.head import Lane
from punctual.domain.run import Run
from punctual.domain.timing import CLAIM_LEASE
from punctual.engine.executor import Assignment, Executor, Finished, Handed
from punctual.engine.jobs import Jobs
from punctual.engine.limits import LimitsOf
from punctual.engine.looker import Looker
from punctual.engine.notifying import Secrets
from punctual.engine.performing import Performing
from punctual.engine.planner import Planned, Planner
from punctual.engine.poller import BATCH, Poller
from punctual.engine.ports import Clock, Message, NewId
from punctual.engine.reconciler import Reconciler
from punctual.engine.search import Search
from punctual.engine.steps import Steps
from punctual.engine.sweeper import Sweeper
from punctual.local.groups import GroupFiles
from punctual.local.holding import NOT_BEGUN, Ended, Holding
from punctual.local.house import House
from punctual.local.inline import EventsInline
from punctual.local.kinds import INLINE, INLINE_TYPES
from punctual.local.limits import Admission, NodeQuotas, node_quotas
from punctual.local.monitor import NodeMonitor
from punctual.local.queued import QueuedHeads
from punctual.local.ready import Ready
from punctual.local.store import Store
from punctual.local.webhooks import Webhooks, no_secrets
from punctual.local.wiring import Wiring
from punctual.local.workers import Workers
from punctual.tasks.registry import Registry

T = TypeVar("T")
Log = Callable[..., None]
AHEAD = timedelta(seconds=2)  # fired so early, what is due together starts by its priority
PLAN = timedelta(seconds=20)
QUIET = timedelta(milliseconds=500)  # so long before the next step, the store may tidy up
CATCH_UP = timedelta(milliseconds=200)  # between two plans while minutes behind are left


class _Starting(NamedTuple):
    """Claimed, and to be started once the claim is on the disk."""

    lane: Lane
    assignment: Assignment
    work: Callable[[], None]


class Node:
    """Everything happens in `step` and in `perform`, on one thread; only tasks have their own."""

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
        self._clock = clock
        self._new_id = new_id
        self._log = log
        self._workers = workers
        self._woken = woken
        wiring = Wiring()
        slots = {lane: one.size for lane, one in workers.items()}
        self._admission = Admission(limits_of, clock, store.starts, slots)
        self.ready = Ready(QueuedHeads(store.heads), INLINE_TYPES, self._admission)
        self.ports = store.ports(self.ready, wiring)
        self.steps = Steps(self.ports, clock, monotonic, log, store.work())
        self._looker = Looker(self.steps, new_id)
        self.executor = Executor(self.ports, self.steps, new_id, executor_id)
        performing = Performing(self.ports, self.steps, self.executor, new_id)
        self._events = EventsInline(performing, self.ready, store.feed, new_id)
        looker = Looker(self.steps, new_id, self._events)
        self.poller = Poller(store.timers, store.buckets, looker, AHEAD)
        # One name for all nodes of a folder: its lock proves that a minute's former holder is gone.
        self._planner = Planner(store.buckets, "node")
        reconciler = Reconciler(self.ports, self.steps, self._looker)
        now = clock()
        self._house = House(store, reconciler, Sweeper(self.ports, self._looker), log, now)
        self.holding = Holding(self.executor, registry, store.blobs, monotonic)
        self._wiring = wiring
        wiring.poller = self.poller
        self.webhooks = Webhooks(*(store, self.ports, registry, webhook_secrets, clock, log, woken))
        self.monitor = NodeMonitor(store, self.holding, registry, executor_id, store.warnings)
        self.search = Search(self.ports, clock, self.monitor, log)
        self.quotas = node_quotas(limits_of, store.count_jobs, clock, monotonic, store.starts)
        self._counted: list[Admission | NodeQuotas] = [self._admission]
        if isinstance(self.quotas, NodeQuotas):
            self._counted.append(self.quotas)
        self.jobs = Jobs(self.ports, self.steps, self.search, clock, new_id, quotas=self.quotas)
        self._ended: deque[Ended] = deque()
        self._starting: list[_Starting] = []
        self._plan_at = now
        self._closing = False

    def start(self) -> None:
        """End what a predecessor left: the folder's lock proves that nobody else holds a claim."""
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
        """Answer requests in one transaction; none of the answers is given before its commit."""
        answers: list[T | Exception] = []
        with self._unit():
            for request in requests:
                try:
                    answers.append(request())
                except Exception as error:
                    answers.append(error)
        return answers

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """One transaction; if it is undone, what was taken from memory in it is read again."""
        try:
            with self._store.work():
                yield
        except BaseException:
            starting, self._starting = self._starting, []
            for one in starting:
                self.holding.let_go(one.assignment)
            self._wiring.kills.clear()
            self.poller.start_over()
            self.ready.start_over()
            self._events.start_over()
            for counted in self._counted:
                counted.undo()
            raise
        for counted in self._counted:
            counted.keep()
        if self._wiring.kills:
            self.holding.stop(self._wiring.kills)
            self._wiring.kills.clear()

    def step(self) -> datetime | None:
        """Do what is due, a batch of each kind at most; when to step again."""
        ended = list(self._ended)
        with self._unit():
            now = self._clock()
            self.holding.beat(now)
            self._plan(now)
            more = self.poller.step(now).handled >= BATCH
            self._write(ended)
            more |= self._run_inline()
            self._claim_for_workers()
        for one in ended:
            self._ended.popleft()
            self.holding.let_go(one.assignment)
            self._admission.end(one.assignment.key.tenant, one.finished.run_id)
        starting, self._starting = self._starting, []
        for one_more in starting:
            self._workers[one_more.lane].start(one_more.work)
        self.webhooks.step(self._clock())
        self._house.keep(self._clock())
        if more or self._left():
            return self._clock()
        at = self.next_at()
        if at is not None and at - self._clock() > QUIET:
            self._store.tidy()
        return at

    def _left(self) -> bool:
        """What this step itself queued may have come behind the one that would have taken it."""
        if self._closing:
            return False
        free = [lane for lane in (Lane.QUICK, Lane.LONG) if self._workers[lane].free > 0]
        now = self._clock()
        return any(self.ready.waiting(kind, now) for kind in (INLINE, *free))

    def _plan(self, now: datetime) -> None:
        if self._plan_at > now:
            return
        planned: Planned = self._planner.tick(now, self.poller.places)
        for lease in planned.leases:
            self.poller.open(lease)
        self._plan_at = now + (CATCH_UP if planned.behind else PLAN)
        self.monitor.planned(now, planned.watermark)

    def _run_inline(self) -> bool:
        """Events are published in the commit that ends their runs."""
        now = self._clock()
        if self._closing:
            return False
        ran = self._events.run(now, BATCH)
        if not ran.taken:
            return False
        self.monitor.performed([run for _, run in ran.done])
        for finished, run in ran.done:
            if not finished.detail.plain:
                self._tell(finished, run)
        self._admission.begin(((one.key.tenant, run) for one, run in ran.done), INLINE)
        self._come_again(ran.again)
        self.poller.settle(ran.looked, now)
        return ran.taken >= BATCH

    def _claim(self, lane: Lane, messages: Sequence[Message], now: datetime) -> Handed:
        handed = self.executor.claim(messages)
        for assignment in handed.granted:
            self.monitor.started(assignment.run)
        begun = ((one.key.tenant, one.run) for one in handed.granted)
        self._admission.begin(begun, lane)
        over = now + CLAIM_LEASE
        self._come_again([*handed.again, *((one.message, over) for one in handed.unread)])
        return handed

    def _come_again(self, messages: Sequence[tuple[Message, datetime]]) -> None:
        for message, at in messages:
            self.ready.again(message, at)

    def _claim_for_workers(self) -> None:
        if self._closing:
            return
        now = self._clock()
        for lane in (Lane.QUICK, Lane.LONG):
            free = self._workers[lane].free
            messages = self.ready.take(lane, now, free) if free > 0 else []
            if messages:
                for assignment in self._claim(lane, messages, now).granted:
                    work = self.holding.take(assignment, now, self._on_ended)
                    self._starting.append(_Starting(lane, assignment, work))

    def _on_ended(self, ended: Ended) -> None:
        """Called by a worker's thread: a deque's append is atomic."""
        self._ended.append(ended)
        self._woken()

    def _write(self, ended: Sequence[Ended]) -> None:
        """What the shutdown stopped, or a lost claim, is given back; not what had ended anyway."""
        if not ended:
            return
        given_up = ("SHUTDOWN", "LOST", NOT_BEGUN)
        back = [one for one in ended if one.stopped in given_up and not one.has_ended]
        self._finish([one.finished for one in ended if one not in back])
        for one in back:
            finished = one.finished
            begun = one.stopped != NOT_BEGUN
            self.executor.release(
                finished.key, finished.run_id, finished.token, begun, waits=not begun
            )

    def _finish(self, finished: Sequence[Finished]) -> None:
        results = self.executor.finish(finished)
        for one, result in zip(finished, results, strict=True):
            if result.decision is not None and result.decision.run is not None:
                self._note(one, result.decision.run)

    def _note(self, finished: Finished, run: Run) -> None:
        self.monitor.ended(run)
        if not finished.detail.plain:
            self._tell(finished, run)

    def _tell(self, finished: Finished, run: Run) -> None:
        """Log a run that took time or went wrong.

        Only the first line of its error: what follows is what a script printed, which may be
        anything, and is kept with the run.
        """
        self._log(
            "run_ended" if run.ended_at else "attempt_failed",
            job_id=finished.key.job_id,
            run_id=finished.run_id,
            attempt=run.attempt if run.ended_at else run.attempt - 1,
            status=run.status.value if run.ended_at else finished.status.value,
            error=finished.detail.error.partition("\n")[0],
        )

    def next_at(self) -> datetime | None:
        """When the next step is due."""
        moments = [self.holding.next_beat(), self._house.next_at, self._plan_at]
        moments += [self.poller.next_at(self._clock()), self.ready.next_at()]
        moments.append(self.webhooks.next_at())
        return min(moment for moment in moments if moment is not None)

    def drain(self) -> None:
        """Start nothing more, and let what runs go on to its end."""
        self._closing = True
        self.webhooks.close()

    def close(self) -> None:
        """Stop what runs: each attempt is LOST, and the run is given back for the next start."""
        self.drain()
        self.holding.stop_all()

    @property
    def idle(self) -> bool:
        return not len(self.holding) and not self._ended and self.webhooks.idle
