"""The processes of a simulated world: API clients, planner, poller, executors, reconciler."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.domain.decide import Verdict
from punctual.domain.errors import PunctualError, Unavailable
from punctual.domain.leases import CLAIM_LEASE, RENEWAL_INTERVAL, RENEWAL_TIMEOUT
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
from tests.support.simulation.invariants import StoryInvariants, output_of
from tests.support.simulation.world import START, Process, World

RENEWALS = timedelta(seconds=15)
MAX_CONCURRENT_ATTEMPTS = 5


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
        applier = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        search = job_queries(self.ports, self.clock, _NoMonitor())
        jobs = job_commands(self.ports, applier, search, self.clock, self.new_id)
        self._jobs: Any = _RecordedCalls(jobs, self.world.invariants)

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
        states = [
            stored.state
            for key, stored in self.world.memory.job_states.rows.items()
            if key[1] == job_id
        ]
        active = [run.run_id for state in states for run in state.runs]
        waiting = [stored.run_id for state in states for stored in state.wait_queue]
        ended = [key.run_id for key in self.world.invariants.ended if key.job_id == job_id]
        return [*active, *waiting, *ended[-2:]]

    def next_at(self) -> datetime | None:
        return START + timedelta(seconds=self.actions[0].at) if self.actions else None


class _RecordedCalls:
    """The calls of the API. The invariants learn of calls that end or catch up runs."""

    def __init__(self, jobs: Jobs, invariants: StoryInvariants) -> None:
        self._jobs = jobs
        self._invariants = invariants

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if method in ("cancel", "cancel_run", "resume"):
                requests = self._invariants.ledger_of(JobKey(*args[:2])).requests
                if method == "cancel":
                    requests.cancelled = True
                elif method == "cancel_run":
                    requests.cancelled_runs.add(args[2])
                else:
                    requests.missed.add(args[2] if len(args) > 2 else None)
            return getattr(self._jobs, method)(*args, **kwargs)

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
            self.world.new_leases.extend(planner.tick(self.clock()).leases)

    def next_at(self) -> datetime | None:
        return self._next_at


class PollerProcess(Process):
    def begin(self) -> None:
        applier = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        ahead = timedelta(seconds=self.world.setup.ahead)
        evaluator = Evaluator(applier, self.new_id)
        self.poller = Poller(self.ports.timers, self.ports.partitions, evaluator, ahead)
        self._next_at: datetime | None = None

    def step(self) -> None:
        self.poller.add_timers(self.world.take_new_timers())
        new_leases, self.world.new_leases[:] = list(self.world.new_leases), []
        for lease in new_leases:
            self.poller.add_partition(lease)
        self._next_at = self.world.now
        next_at = self.poller.step(self.clock()).next_step_at
        self._next_at = self.world.now + RENEWALS if self.poller.leased_partitions else None
        if next_at is not None:
            next_at = self.to_world_time(next_at)
            self._next_at = min(next_at, self._next_at) if self._next_at else next_at

    def next_at(self) -> datetime | None:
        if self.world.new_leases or self.world.memory.wakeups.new_timers:
            return self.world.now
        return self._next_at


@dataclass
class Work:
    """One attempt in progress."""

    assignment: Assignment
    delivery: Delivery | None  # None after its acknowledgement
    ends_at: datetime
    status: RunStatus
    renew_at: datetime
    renewed: float
    crashes: bool = False
    back: "ReturnPlan | None" = None
    renewals: int = 0


def _error_of(work: Work) -> str:
    """Return one of two errors for a failed attempt, so that jobs have several open failures."""
    if work.status in (RunStatus.SUCCESS, RunStatus.CANCELLED):
        return ""
    return "the disk is full" if work.assignment.run.token % 2 else "the peer did not answer"


class ReturnPlan(NamedTuple):
    """A return of a run by its executor: whether the work had begun, and whether it must wait."""

    begun: bool = False
    waits: bool = False


class AttemptPlan(NamedTuple):
    """The course of an attempt. With `crashes` its executor crashes after `seconds`."""

    seconds: float = 1
    status: RunStatus = RunStatus.SUCCESS
    crashes: bool = False
    back: ReturnPlan | None = None


class ExecutorProcess(Process):
    def __init__(
        self, world: World, name: str, attempt_plan: Callable[[Assignment], AttemptPlan]
    ) -> None:
        self._attempt_plan = attempt_plan
        super().__init__(world, name)

    def begin(self) -> None:
        applier = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        self._executor = an_executor(self.ports, applier, self.new_id, self.name)
        self._works: list[Work] = []

    def step(self) -> None:
        for key, run_id in self.world.take_stop_requests():
            for work in self._works:
                if (work.assignment.key, work.assignment.run.run_id) == (key, run_id):
                    self._stop(work)
        works = self._works
        for work in list(works):
            self._continue(work)
            if self._works is not works:
                return  # it crashed, and lost all its attempts
        room = MAX_CONCURRENT_ATTEMPTS - len(self._works)
        if room:
            self._claim(room)

    def _continue(self, work: Work) -> None:
        now = self.world.now
        if work.crashes and now >= work.ends_at:
            self.wake_at = now + timedelta(seconds=2)
            self.begin()
            return
        if work.renewals and self.monotonic() - work.renewed > RENEWAL_TIMEOUT.total_seconds():
            self._works.remove(work)
            return
        if now >= work.renew_at:
            self._renew(work)
        if work in self._works and self.world.now >= work.ends_at and not work.crashes:
            if work.back is None:
                self._finish(work)
            else:
                self._return(work, work.back)

    def _renew(self, work: Work) -> None:
        run = work.assignment.run
        work.renew_at = self.world.now + RENEWAL_INTERVAL
        held = [(work.assignment.key, run.run_id, run.token)]
        (alive,) = self._executor.renew(held, is_first=work.renewals == 0)
        work.renewals += 1
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
        detail = Detail(output_blob=name, error=_error_of(work))
        self.world.invariants.reports.ends[key, run.run_id, run.token] = work.status
        finished = FinishedAttempt(key, run.run_id, run.token, work.status, True, detail)
        (result,) = self._executor.finish([finished])
        if result.is_contended:
            return
        self._remove(work, result)
        if result.verdict is Verdict.OK:
            self.world.answers[f"finished {run.run_id}"] = self.name

    def _return(self, work: Work, back: ReturnPlan) -> None:
        run, key = work.assignment.run, work.assignment.key
        self.world.invariants.reports.returns[key, run.run_id, run.token] = back.begun
        result = self._executor.return_claim(key, run.run_id, run.token, back.begun, back.waits)
        if not result.is_contended:
            self._remove(work, result)

    def _remove(self, work: Work, result: Result) -> None:
        self._works.remove(work)
        if result.effects_done and work.delivery is not None:
            self.queue.acknowledge(work.delivery)

    def _claim(self, room: int) -> None:
        queue = self.queue
        if self.world.random.random() < self.world.setup.repeats:
            self.world.memory.run_queue.repeat()
        deliveries = queue.receive(room)
        if not deliveries:
            return
        self.world.random.shuffle(deliveries)
        messages = [delivery.message for delivery in deliveries]
        new_leases = self._executor.claim(messages)
        assignments = {assignment.run.run_id: assignment for assignment in new_leases.claimed}
        retry_later = dict(new_leases.retry_later)
        lease_ends_at = self.clock() + CLAIM_LEASE
        retry_later.update(
            (assignment.message, lease_ends_at) for assignment in new_leases.payload_unavailable
        )  # its payload could not be read
        for delivery in deliveries:
            message = delivery.message
            if message not in retry_later and message not in new_leases.done:
                self._take(assignments[message.run_id], delivery)
        for delivery in deliveries:
            message = delivery.message
            if message in retry_later:
                queue.change_visibility(delivery, self.to_world_time(retry_later[message]))
            elif message in new_leases.done:
                queue.acknowledge(delivery)

    def _take(self, assignment: Assignment, delivery: Delivery) -> None:
        attempt_plan, now = self._attempt_plan(assignment), self.world.now
        self._works.append(
            Work(
                assignment,
                delivery,
                now + timedelta(seconds=attempt_plan.seconds),
                attempt_plan.status,
                now + RENEWAL_INTERVAL,
                self.monotonic(),
                attempt_plan.crashes,
                attempt_plan.back,
            )
        )

    def next_at(self) -> datetime | None:
        times = [min(work.renew_at, work.ends_at) for work in self._works]
        if len(self._works) < MAX_CONCURRENT_ATTEMPTS and (
            at := self.world.memory.run_queue.next_at()
        ):
            times.append(at)
        return min(times, default=None)


class ReconcilerProcess(Process):
    """A reconciler that must find nothing, except in stories that delete timers."""

    def __init__(self, world: World) -> None:
        self._next_at = world.now + timedelta(seconds=50)
        super().__init__(world, "reconciler")

    def step(self) -> None:
        self._next_at = self.world.now + timedelta(seconds=70)
        applier = a_change_applier(self.ports, self.clock, self.monotonic, self.log)
        result = a_reconciler(
            self.ports, applier, Evaluator(applier, self.new_id), self.new_id
        ).step()
        repaired = result.repaired_keys
        self.world.repaired_jobs += len(repaired)
        assert not repaired or self.world.setup.may_repair, (
            f"rule 2: the reconciler had to repair {repaired}"
        )

    def next_at(self) -> datetime | None:
        return self._next_at
