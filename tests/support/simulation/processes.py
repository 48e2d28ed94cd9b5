"""The processes of a simulated world: API clients, planner, poller, executors, reconciler."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.domain.decide import Verdict
from punctual.domain.durations import CLAIM_LEASE, RENEWAL_INTERVAL, RENEWAL_TIMEOUT
from punctual.domain.errors import PunctualError, Unavailable
from punctual.domain.run import Reason, RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.changes.run_results import output_key
from punctual.engine.commands.jobs import Jobs
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.planner import Planner
from punctual.engine.dispatch.poller import Poller
from punctual.engine.execution.executor import Assignment, FinishedAttempt
from punctual.engine.ports.rows import Detail, JobKey
from tests.support.ports import (
    a_change_applier,
    a_reconciler,
    an_executor,
    job_commands,
    job_queries,
)
from tests.support.simulation.fifo import Delivery
from tests.support.simulation.laws import StoryLaws, output_of
from tests.support.simulation.world import START, Process, World

RENEWALS = timedelta(seconds=15)
AT_ONCE = 5


class Action(NamedTuple):
    """A client's call, which is repeated until it is answered."""

    at: float  # seconds after the start
    name: str
    call: Callable[[Jobs, dict[str, Any]], Any]


class Api(Process):
    def __init__(self, world: World, actions: list[Action], name: str = "api") -> None:
        self.actions = sorted(actions)
        super().__init__(world, name)

    def begin(self) -> None:
        steps = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        search = job_queries(self.ports, self.clock, _NoMonitor())
        jobs = job_commands(self.ports, steps, search, self.clock, self.new_id)
        self._jobs: Any = _Asking(jobs, self.world.laws)

    def step(self) -> None:
        action = self.actions[0]
        self.world.answers["now"] = self.world.now
        self.world.answers["runs"] = self._runs_of
        try:
            answer = action.call(self._jobs, self.world.answers)
        except Unavailable:
            raise
        except PunctualError as error:
            answer = error
        self.world.answers[action.name] = answer
        self.actions.pop(0)

    def _runs_of(self, job_id: str) -> list[str]:
        """Return the runs of a job that a list would show now."""
        heads = [one.state for key, one in self.world.memory.heads.rows.items() if key[1] == job_id]
        alive = [run.run_id for head in heads for run in head.runs]
        waiting = [one.run_id for head in heads for one in head.wait_queue]
        ended = [key.run_id for key in self.world.laws.ended if key.job_id == job_id]
        return [*alive, *waiting, *ended[-2:]]

    def next_at(self) -> datetime | None:
        return START + timedelta(seconds=self.actions[0].at) if self.actions else None


class _Asking:
    """The calls of the API. The laws learn of calls that end or catch up runs."""

    def __init__(self, jobs: Jobs, laws: StoryLaws) -> None:
        self._jobs = jobs
        self._laws = laws

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **how: Any) -> Any:
            if method in ("cancel", "cancel_run", "resume"):
                asked = self._laws.book(JobKey(*args[:2])).asked
                if method == "cancel":
                    asked.cancelled = True
                elif method == "cancel_run":
                    asked.cancelled_runs.add(args[2])
                else:
                    asked.missed.add(args[2] if len(args) > 2 else None)
            return getattr(self._jobs, method)(*args, **how)

        return call


class _NoMonitor:
    def stats(self, tenant: str, now: datetime) -> Any:
        raise NotImplementedError

    def health(self, now: datetime) -> Any:
        raise NotImplementedError


class PlannerProcess(Process):
    def __init__(self, world: World) -> None:
        self._ticks = 0
        self._next_at = world.now
        super().__init__(world, "planner")

    def step(self) -> None:
        self._ticks += 1
        setup = self.world.setup
        self._next_at = self.world.now + timedelta(seconds=setup.tick_seconds)
        silent = setup.no_ticks
        if silent is not None and silent[0] <= self.monotonic() < silent[1]:
            return
        for _ in range(2 if setup.twin_ticks else 1):
            planner = Planner(self.ports.partitions, f"planner-{self._ticks}")
            self.world.handed.extend(planner.tick(self.clock()).leases)

    def next_at(self) -> datetime | None:
        return self._next_at


class PollerProcess(Process):
    def begin(self) -> None:
        steps = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        ahead = timedelta(seconds=self.world.setup.ahead)
        looker = Evaluator(steps, self.new_id)
        self.poller = Poller(self.ports.timers, self.ports.partitions, looker, ahead)
        self._next_at: datetime | None = None

    def step(self) -> None:
        self.poller.add_timers(self.world.take_nudges())
        handed, self.world.handed[:] = list(self.world.handed), []
        for lease in handed:
            self.poller.add_partition(lease)
        self._next_at = self.world.now
        moment = self.poller.step(self.clock()).next_step_at
        self._next_at = self.world.now + RENEWALS if self.poller.leased_partitions else None
        if moment is not None:
            moment = self.true(moment)
            self._next_at = min(moment, self._next_at) if self._next_at else moment

    def next_at(self) -> datetime | None:
        if self.world.handed or self.world.memory.wake.nudges:
            return self.world.now
        return self._next_at


@dataclass
class Work:
    """One attempt in progress."""

    assignment: Assignment
    delivery: Delivery | None  # None after its acknowledgement
    ends_at: datetime
    status: RunStatus
    beat_at: datetime
    renewed: float
    dies: bool = False
    back: "Back | None" = None
    beats: int = 0


class Back(NamedTuple):
    """A return of a run by its executor: whether the work had begun, and whether it must wait."""

    begun: bool = False
    waits: bool = False


class Plot(NamedTuple):
    """The course of an attempt. With `dies` its executor crashes after `seconds`."""

    seconds: float = 1
    status: RunStatus = RunStatus.SUCCESS
    dies: bool = False
    back: Back | None = None


class ExecutorProcess(Process):
    def __init__(self, world: World, name: str, plot: Callable[[Assignment], Plot]) -> None:
        self._plot = plot
        super().__init__(world, name)

    def begin(self) -> None:
        steps = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        self._executor = an_executor(self.ports, steps, self.new_id, self.name)
        self._works: list[Work] = []

    def step(self) -> None:
        for key, run_id in self.world.take_kills():
            for work in self._works:
                if (work.assignment.key, work.assignment.run.run_id) == (key, run_id):
                    self._stop(work)
        works = self._works
        for work in list(works):
            self._attend(work)
            if self._works is not works:
                return  # it crashed, and lost all its attempts
        room = AT_ONCE - len(self._works)
        if room:
            self._claim(room)

    def _attend(self, work: Work) -> None:
        now = self.world.now
        if work.dies and now >= work.ends_at:
            self.wake_at = now + timedelta(seconds=2)
            self.begin()
            return
        if work.beats and self.monotonic() - work.renewed > RENEWAL_TIMEOUT.total_seconds():
            self._works.remove(work)
            return
        if now >= work.beat_at:
            self._beat(work)
        if work in self._works and self.world.now >= work.ends_at and not work.dies:
            if work.back is None:
                self._finish(work)
            else:
                self._give_back(work, work.back)

    def _beat(self, work: Work) -> None:
        run = work.assignment.run
        work.beat_at = self.world.now + RENEWAL_INTERVAL
        held = [(work.assignment.key, run.run_id, run.token)]
        (alive,) = self._executor.renew(held, is_first=work.beats == 0)
        work.beats += 1
        if not alive.is_held:
            self._works.remove(work)
            return
        work.renewed = self.monotonic()
        if work.delivery is not None:
            self.queue.acknowledge(work.delivery)
            work.delivery = None
        if alive.cancel_reason is not Reason.NONE:
            self._stop(work)

    def _stop(self, work: Work) -> None:
        work.status, work.ends_at, work.back = RunStatus.CANCELLED, self.world.now, None

    def _finish(self, work: Work) -> None:
        run, key = work.assignment.run, work.assignment.key
        name = output_key(key, run.run_id, run.attempt)
        self.ports.blobs.put(name, output_of(run.run_id, run.token), "text/plain")
        detail = Detail(output_blob=name)
        self.world.laws.reports.ends[key, run.run_id, run.token] = work.status
        one = FinishedAttempt(key, run.run_id, run.token, work.status, True, detail)
        (result,) = self._executor.finish([one])
        if result.is_contended:
            return
        self._leave(work, result)
        if result.verdict is Verdict.OK:
            self.world.answers[f"finished {run.run_id}"] = self.name

    def _give_back(self, work: Work, back: Back) -> None:
        run, key = work.assignment.run, work.assignment.key
        self.world.laws.reports.returns[key, run.run_id, run.token] = back.begun
        result = self._executor.return_claim(key, run.run_id, run.token, back.begun, back.waits)
        if not result.is_contended:
            self._leave(work, result)

    def _leave(self, work: Work, result: Result) -> None:
        self._works.remove(work)
        if result.effects_done and work.delivery is not None:
            self.queue.acknowledge(work.delivery)

    def _claim(self, room: int) -> None:
        queue = self.queue
        if self.world.random.random() < self.world.setup.repeats:
            self.world.memory.queue.repeat()
        deliveries = queue.receive(room)
        if not deliveries:
            return
        self.world.random.shuffle(deliveries)
        messages = [delivery.message for delivery in deliveries]
        handed = self._executor.claim(messages)
        granted = {one.run.run_id: one for one in handed.claimed}
        again = dict(handed.retry_later)
        over = self.clock() + CLAIM_LEASE
        again.update(
            (one.message, over) for one in handed.payload_unavailable
        )  # its payload could not be read
        for delivery in deliveries:
            message = delivery.message
            if message not in again and message not in handed.done:
                self._take(granted[message.run_id], delivery)
        for delivery in deliveries:
            message = delivery.message
            if message in again:
                queue.hand_back(delivery, self.true(again[message]))
            elif message in handed.done:
                queue.acknowledge(delivery)

    def _take(self, assignment: Assignment, delivery: Delivery) -> None:
        plot, now = self._plot(assignment), self.world.now
        self._works.append(
            Work(
                assignment,
                delivery,
                now + timedelta(seconds=plot.seconds),
                plot.status,
                now + RENEWAL_INTERVAL,
                self.monotonic(),
                plot.dies,
                plot.back,
            )
        )

    def next_at(self) -> datetime | None:
        moments = [min(work.beat_at, work.ends_at) for work in self._works]
        if len(self._works) < AT_ONCE and (at := self.world.memory.queue.next_at()):
            moments.append(at)
        return min(moments, default=None)


class ReconcilerProcess(Process):
    """A reconciler that must find nothing, except in stories that delete timers."""

    def __init__(self, world: World) -> None:
        self._next_at = world.now + timedelta(seconds=50)
        super().__init__(world, "reconciler")

    def step(self) -> None:
        self._next_at = self.world.now + timedelta(seconds=70)
        steps = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        walked = a_reconciler(self.ports, steps, Evaluator(steps, self.new_id)).step()
        mended = walked.repaired_keys
        self.world.mended += len(mended)
        assert not mended or self.world.setup.mended, f"rule 2: the reconciler had to mend {mended}"

    def next_at(self) -> datetime | None:
        return self._next_at
