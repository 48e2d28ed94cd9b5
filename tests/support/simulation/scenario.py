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
from tests.support.simulation.laws import outstanding
from tests.support.simulation.processes import (
    Action,
    Api,
    ExecutorProcess,
    PlannerProcess,
    Plot,
    PollerProcess,
    ReconcilerProcess,
)
from tests.support.simulation.torn import Fault
from tests.support.simulation.world import START, Setup, World

TENANT = "acme"
LIMIT = 1500  # seconds by which everything must end under any fault
SKEWS = {"api": 0.0, "planner": 4.0, "poller": 2.5, "e1": 5.0, "e2": 0.5, "reconciler": 1.0}
SKEWED = Setup(skews=SKEWS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(moment: datetime) -> str:
    return moment.isoformat()


def document(**fields: Any) -> dict[str, Any]:
    return {"name": "a job", "schedule_type": "IMMEDIATE", **fields}


def dated(fields: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """Return fields with a relative time made absolute, because the API refuses past times."""
    if "in_seconds" not in fields:
        return fields
    moment = answers["now"] + timedelta(seconds=fields["in_seconds"])
    kept = {name: value for name, value in fields.items() if name != "in_seconds"}
    return {**kept, "schedule_time": text(moment)}


def submit(name: str, *documents: dict[str, Any], tenant: str = TENANT) -> Any:
    """Return a client's submission. Its idempotency keys make a repeat safe."""

    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        wanted = []
        for number, fields in enumerate(documents):
            wanted.append(Submission(dated(fields, answers), f"{name}/{number}", name))
        return jobs.submit(tenant, "client", wanted)

    return call


def job_id(answers: dict[str, Any], name: str = "submit") -> str:
    if name not in answers:
        raise Unavailable("The client has not yet been told its job.")
    return str(answers[name][0].state.job_id)


def on_job(method: str, *args: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return getattr(jobs, method)(TENANT, job_id(answers), *args)

    return call


def change(**fields: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.change(TENANT, job_id(answers), lambda old: {**old, **dated(fields, answers)})

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


def quick(assignment: Assignment) -> Plot:
    return Plot()


@dataclass(frozen=True)
class Scenario:
    name: str
    actions: Sequence[Action]
    plot: Callable[[Assignment], Plot] = quick
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
            ExecutorProcess(world, "e1", self.plot),
            ExecutorProcess(world, "e2", self.plot),
            ReconcilerProcess(world),
            Api(world, list(self.others), "api2"),
        ]
        return world

    def play(self, faults: Sequence[Fault] = (), **setup: Any) -> World:
        """Play the story until no work is left, and check the rules."""
        world = self.world(faults, **setup)
        try:
            for seconds, event in self.events:
                world.run(at(seconds))
                event(world)
            world.run(at(self.limit), lambda: is_over(world))
        finally:
            world.close()
        world.laws.at_the_end(world.memory, world.now)
        self.check(world)
        return world


def is_over(world: World) -> bool:
    memory = world.memory
    if memory.queue.entries or any(
        isinstance(process, Api) and process.actions for process in world.processes
    ):
        return False
    if outstanding(memory):
        return False
    for stored in memory.heads.rows.values():
        head = stored.state
        if head.runs or head.wait_queue or head.status in (JobStatus.SCHEDULED, JobStatus.PAUSED):
            return False
    return world.laws.ended.keys() <= memory.history.rows.keys()


def outcomes(world: World, trigger: Trigger = Trigger.SCHEDULE) -> list[tuple[str, str, int]]:
    """Return the ledger in order of time as (status, reason, count)."""
    runs = [run for run in world.laws.ended.values() if run.trigger is trigger]
    runs.sort(key=lambda run: run.scheduled_at)
    return [(run.status.value, run.reason.value, run.occurrence_count) for run in runs]


def count(world: World, status: RunStatus) -> int:
    return sum(run.occurrence_count for run in world.laws.ended.values() if run.status is status)


def all_succeed(number: int) -> Callable[[World], None]:
    def check(world: World) -> None:
        assert count(world, RunStatus.SUCCESS) == number, outcomes(world)

    return check
