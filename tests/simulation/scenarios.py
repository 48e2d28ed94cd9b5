"""Small stories, each a few minutes of one installation, to be run with and without faults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.head import State
from punctual.domain.run import Status, Trigger
from punctual.engine.executor import Assignment
from punctual.engine.jobs import Jobs, Submission

from tests.simulation.laws import outstanding
from tests.simulation.processes import (
    Action,
    Api,
    ExecutorProcess,
    PlannerProcess,
    Plot,
    PollerProcess,
    ReconcilerProcess,
)
from tests.simulation.torn import Fault
from tests.simulation.world import START, Setup, World

TENANT = "acme"
LIMIT = 1500  # seconds within which everything must have come to its end, whatever failed
SKEWS = {"api": 0.0, "planner": 4.0, "poller": 2.5, "e1": 5.0, "e2": 0.5, "reconciler": 1.0}
SKEWED = Setup(skews=SKEWS)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(moment: datetime) -> str:
    return moment.isoformat()


def document(**fields: Any) -> dict[str, Any]:
    return {"name": "a job", "schedule_type": "IMMEDIATE", **fields}


def submit(name: str, *documents: dict[str, Any], tenant: str = TENANT) -> Any:
    """A client's call; its keys make asking again safe."""

    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        wanted = [Submission(doc, f"{name}/{n}", name) for n, doc in enumerate(documents)]
        return jobs.submit(tenant, "client", wanted)

    return call


def job_id(answers: dict[str, Any], name: str = "submit") -> str:
    return str(answers[name][0].head.job_id)


def on_job(method: str, *args: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return getattr(jobs, method)(TENANT, job_id(answers), *args)

    return call


def change(**fields: Any) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.change(TENANT, job_id(answers), lambda old: {**old, **fields})

    return call


def run_now(key: str) -> Any:
    def call(jobs: Jobs, answers: dict[str, Any]) -> Any:
        return jobs.run_now(TENANT, job_id(answers), key=key, fingerprint=key)

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

    def world(self, faults: Sequence[Fault] = (), **setup: Any) -> World:
        world = World(replace(self.setup, **setup), faults)
        world.processes += [
            Api(world, list(self.actions)),
            PlannerProcess(world),
            PollerProcess(world, "poller"),
            ExecutorProcess(world, "e1", self.plot),
            ExecutorProcess(world, "e2", self.plot),
            ReconcilerProcess(world),
        ]
        return world

    def play(self, faults: Sequence[Fault] = (), **setup: Any) -> World:
        """Until nothing is left to do; then the rules are asked."""
        world = self.world(faults, **setup)
        for seconds, event in self.events:
            world.run(at(seconds))
            event(world)
        world.run(at(LIMIT), lambda: is_over(world))
        world.laws.at_the_end(world.memory, world.now)
        self.check(world)
        return world


def is_over(world: World) -> bool:
    memory = world.memory
    if world.processes[0].next_at() is not None or memory.queue.entries:
        return False
    if outstanding(memory):
        return False
    for stored in memory.heads.rows.values():
        head = stored.head
        if head.runs or head.line or head.state in (State.SCHEDULED, State.PAUSED):
            return False
    return world.laws.ended.keys() <= memory.history.rows.keys()


def outcomes(world: World, trigger: Trigger = Trigger.SCHEDULE) -> list[tuple[str, str, int]]:
    """The ledger in the order of time: (status, reason, count)."""
    runs = [run for run in world.laws.ended.values() if run.trigger is trigger]
    runs.sort(key=lambda run: run.scheduled_at)
    return [(run.status.value, run.reason.value, run.count) for run in runs]


def count(world: World, status: Status) -> int:
    return sum(run.count for run in world.laws.ended.values() if run.status is status)


def all_succeed(number: int) -> Callable[[World], None]:
    def check(world: World) -> None:
        assert count(world, Status.SUCCESS) == number, outcomes(world)

    return check


def _fails_twice(assignment: Assignment) -> Plot:
    attempts = len(assignment.run.past.replace("L", ""))
    return Plot(status=(Status.FAILED, Status.TIMED_OUT, Status.SUCCESS)[min(attempts, 2)])


def _dies_first(assignment: Assignment) -> Plot:
    return Plot(6, dies=True) if not assignment.run.past else Plot(2)


def _cancelled(world: World) -> None:
    assert count(world, Status.CANCELLED) == 1, outcomes(world)


def _one_of_each_order(world: World) -> None:
    ordered = outcomes(world, Trigger.RUN_NOW)
    assert ordered == [("SUCCESS", "", 1)], f"one key, one run: {ordered}"


def _replaced(world: World) -> None:
    assert count(world, Status.SUCCESS) >= 1, outcomes(world)
    assert count(world, Status.CANCELLED) >= 1, outcomes(world)


def _two_tenants(world: World) -> None:
    assert count(world, Status.SUCCESS) == 4, outcomes(world)
    tenants = {key.tenant for key in world.memory.heads.rows}
    assert tenants == {"acme", "umbrella"}
    assert {message.tenant for message in world.memory.queue.sent} == tenants


CRON = document(schedule_type="CRON", cron_expression="* * * * *", end_time=text(at(200)))
TWENTY = document(schedule_type="INTERVAL", interval_seconds=20, end_time=text(at(90)))
OUTAGE = (30.0, 300.0)

SCENARIOS = [
    Scenario("one-shot now", [Action(1, "submit", submit("k", document()))], check=all_succeed(1)),
    Scenario(
        "future",
        [
            Action(
                1,
                "submit",
                submit("k", document(schedule_type="FUTURE", schedule_time=text(at(75.5)))),
            )
        ],
        check=all_succeed(1),
    ),
    Scenario("cron", [Action(1, "submit", submit("k", CRON))]),
    Scenario(
        "interval from completion",
        [Action(1, "submit", submit("k", {**TWENTY, "interval_from": "COMPLETED"}))],
    ),
    Scenario(
        "retries",
        [Action(1, "submit", submit("k", document(retry={"backoff_seconds": 8, "jitter": True})))],
        plot=_fails_twice,
        check=all_succeed(1),
    ),
    Scenario(
        "lost executor",
        [Action(1, "submit", submit("k", document()))],
        plot=_dies_first,
        check=all_succeed(1),
    ),
    Scenario(
        "cancel while running",
        [
            Action(1, "submit", submit("k", document())),
            Action(12, "cancel", on_job("cancel")),
        ],
        plot=lambda _: Plot(400),
        check=_cancelled,
    ),
    Scenario(
        "pause and resume",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(30, "pause", on_job("pause")),
            Action(110, "resume", on_job("resume")),
        ],
    ),
    Scenario(
        "change of schedule",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(
                65,
                "change",
                change(schedule_type="INTERVAL", interval_seconds=25, cron_expression=None),
            ),
        ],
    ),
    Scenario(
        "run now, twice with one key",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(25, "first", run_now("once")),
            Action(40, "again", run_now("once")),
            Action(110, "late", run_now("once")),
        ],
        check=_one_of_each_order,
    ),
    Scenario(
        "replace",
        [Action(1, "submit", submit("k", {**TWENTY, "overlap_policy": "REPLACE"}))],
        plot=lambda _: Plot(33),
        check=_replaced,
    ),
    Scenario(
        "queue with two holders",
        [Action(1, "submit", submit("k", {**TWENTY, "max_concurrency": 2}))],
        plot=lambda _: Plot(45),
    ),
    Scenario(
        "outage, run all",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    {**TWENTY, "misfire_policy": "RUN_ALL", "misfire_grace_seconds": 10},
                ),
            )
        ],
        setup=Setup(skews=SKEWS, no_ticks=OUTAGE),
    ),
    Scenario(
        "outage, run once",
        [Action(1, "submit", submit("k", {**CRON, "misfire_grace_seconds": 10}))],
        setup=Setup(skews=SKEWS, no_ticks=OUTAGE),
    ),
    Scenario(
        "shards grow",
        [Action(1, "submit", submit("k", TWENTY, {**TWENTY, "interval_seconds": 35}))],
        events=[(45, lambda world: world.memory.buckets.grow(4))],
    ),
    Scenario(
        "two tenants at one moment",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    *[document(schedule_type="FUTURE", schedule_time=text(at(20)))] * 3,
                ),
            ),
            Action(2, "other", submit("k", document(), tenant="umbrella")),
        ],
        check=_two_tenants,
    ),
]
