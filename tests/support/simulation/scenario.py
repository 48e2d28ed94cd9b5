"""A story of one installation: client calls, the course of runs, and the expected result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus, Trigger
from punctual.engine.commands.jobs import Jobs, Submission
from punctual.engine.execution.executor import Assignment
from punctual.engine.queries.slices import finish
from tests.support.names.own_names import own_name
from tests.support.simulation.invariants import pending_timers
from tests.support.simulation.port_faults import Fault, Partition
from tests.support.simulation.processes import (
    Action,
    Api,
    AttemptPlan,
    ExecutorProcess,
    PlannerProcess,
    PollerProcess,
    ReconcilerProcess,
)
from tests.support.simulation.world import START, Setup, World

TENANT = "acme"
LIMIT = 1500  # seconds by which everything must end under any fault
SKEWS = {"api": 0.0, "planner": 4.0, "poller": 2.5, "e1": 5.0, "e2": 0.5, "reconciler": 1.0}
SKEWED = Setup(skews=SKEWS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(at_time: datetime) -> str:
    return at_time.isoformat()


def document(**fields: Any) -> dict[str, Any]:
    return {"name": own_name("a job"), "schedule_type": "IMMEDIATE", **fields}


def with_absolute_time(fields: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """Return fields with a relative time made absolute, because the API refuses past times."""
    if "in_seconds" not in fields:
        return fields
    at = answers["now"] + timedelta(seconds=fields["in_seconds"])
    others = {name: value for name, value in fields.items() if name != "in_seconds"}
    return {**others, "schedule_time": text(at)}


def submit(name: str, *documents: dict[str, Any], tenant: str = TENANT) -> Any:
    """Return a client's submission. Its idempotency keys make a repeat safe."""

    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        submissions = []
        for number, fields in enumerate(documents):
            submissions.append(
                Submission(with_absolute_time(fields, answers), f"{name}/{number}", name)
            )
        return jobs.submit(tenant, "client", submissions)

    return call


def job_id(answers: dict[str, Any], name: str = "submit") -> str:
    if name not in answers:
        raise Unavailable("The client has no answer with its job yet.")
    return str(answers[name][0].state.job_id)


def on_job(method: str, *args: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return getattr(jobs, method)(TENANT, job_id(answers), *args)

    return call


def change(**fields: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.change(
            TENANT, job_id(answers), lambda old: {**old, **with_absolute_time(fields, answers)}
        )

    return call


def backfill(start: datetime, end: datetime) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return finish(jobs.backfill(TENANT, job_id(answers), start, end, False))

    return call


def run_now(key: str) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.run_now(TENANT, job_id(answers), key=key, fingerprint=key)

    return call


def run_with(payload: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.run_now(TENANT, job_id(answers), payload=payload)

    return call


def quick(assignment: Assignment) -> AttemptPlan:
    return AttemptPlan()


@dataclass(frozen=True)
class Scenario:
    name: str
    actions: Sequence[Action]
    attempt_plan: Callable[[Assignment], AttemptPlan] = quick
    setup: Setup = SKEWED
    check: Callable[[World], None] = lambda world: None
    events: Sequence[tuple[float, Callable[[World], None]]] = field(default=())
    others: Sequence[Action] = field(default=())  # by a second API process
    limit: float = LIMIT

    def world(self, faults: Sequence[Fault] = (), **setup: Any) -> World:
        world = World(replace(self.setup, **setup), faults)
        world.processes += [
            Api(world, list(self.actions)),
            PlannerProcess(world),
            PollerProcess(world, "poller"),
            ExecutorProcess(world, "e1", self.attempt_plan),
            ExecutorProcess(world, "e2", self.attempt_plan),
            ReconcilerProcess(world),
            Api(world, list(self.others), "api2"),
        ]
        return world

    def play(
        self, faults: Sequence[Fault] = (), partitions: Sequence[Partition] = (), **setup: Any
    ) -> World:
        """Play the story until no work is left, and check the rules."""
        world = self.world(faults, **setup)
        world.plan.partitions = tuple(partitions)
        try:
            for seconds, event in self.events:
                world.run(at(seconds))
                event(world)
            world.run(at(self.limit), lambda: is_over(world))
        finally:
            world.close()
        world.invariants.check_end(world.memory, world.now)
        self.check(world)
        return world


def is_over(world: World) -> bool:
    memory = world.memory
    if memory.run_queue.entries or any(
        isinstance(process, Api) and process.actions for process in world.processes
    ):
        return False
    if pending_timers(memory):
        return False
    for stored in memory.job_states.rows.values():
        head = stored.state
        if head.runs or head.wait_queue or head.status in (JobStatus.SCHEDULED, JobStatus.PAUSED):
            return False
    return world.invariants.ended.keys() <= memory.history.rows.keys()


def outcomes(world: World, trigger: Trigger = Trigger.SCHEDULE) -> list[tuple[str, str, int]]:
    """Return the ledger in order of time as (status, reason, count)."""
    runs = [run for run in world.invariants.ended.values() if run.trigger is trigger]
    runs.sort(key=lambda run: run.scheduled_at)
    return [(run.status.value, run.reason.value, run.occurrence_count) for run in runs]


def count(world: World, status: RunStatus) -> int:
    return sum(
        run.occurrence_count for run in world.invariants.ended.values() if run.status is status
    )


def all_succeed(number: int) -> Callable[[World], None]:
    def check(world: World) -> None:
        assert count(world, RunStatus.SUCCESS) == number, outcomes(world)

    return check
