"""The engine over memory ports, stepped by a test. Its calls can be interrupted."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from punctual.domain.job_state import JobState
from punctual.engine.changes.apply import ChangeApplier
from punctual.engine.commands.jobs import Jobs, Submission
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.planner import Planner
from punctual.engine.dispatch.poller import Poller
from punctual.engine.execution.executor import Assignment, Executor, FinishedAttempt
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from tests.support.names.own_names import own_name
from tests.support.ports import (
    Ports,
    a_change_applier,
    an_executor,
    job_commands,
    job_queries,
    port_methods,
)
from tests.support.simulation.invariants import Invariants
from tests.support.simulation.memory import Memory
from tests.support.simulation.port_faults import Call, Plan, with_faults

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TENANT = "acme"


class InterruptingPlan(Plan):
    """A plan that calls back once, before or after the first call of a port's method."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, Callable[[], object]] = {}
        self._after: dict[str, Callable[[], object]] = {}

    def before(self, method: str, action: Callable[[], object]) -> None:
        self._before[_port_method(method)] = action

    def after(self, method: str, action: Callable[[], object]) -> None:
        self._after[_port_method(method)] = action

    def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = f"{call.port}.{call.method}"
        self._before.pop(name, _nothing)()
        answer = super().run(call, real, args)
        self._after.pop(name, _nothing)()
        return answer


def _port_method(name: str) -> str:
    """Return `name`, such as `job_states.swap`. An unknown method would never interrupt a call."""
    port, _, method = name.partition(".")
    assert method in port_methods()[port], name
    return name


def _nothing() -> None:
    pass


class ManualEngine:
    """The engine of one installation. Only calls of the API go through `plan`."""

    def __init__(self) -> None:
        self.now = NOON
        self.invariants = Invariants(self.clock)
        self.memory = Memory(self.clock, self.invariants)
        self.plan = InterruptingPlan()
        self._ids = 0
        self.jobs = self.api()
        self.poller = self.new_poller()

    def clock(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - NOON).total_seconds()

    def new_id(self) -> str:
        self._ids += 1
        return f"01900000-0000-7000-8000-{self._ids:012x}"

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def applier(self, ports: Ports | None = None) -> ChangeApplier:
        return a_change_applier(ports or self.memory.ports, self.clock, self.monotonic, _no_log)

    def api(self) -> Jobs:
        ports = with_faults(self.memory.ports, self.plan, "api")
        search = job_queries(ports, self.clock, _Silent())
        return job_commands(ports, self.applier(ports), search, self.clock, self.new_id)

    def new_poller(self, ahead: float = 0, ports: Ports | None = None) -> Poller:
        process_ports = ports or self.memory.ports
        evaluator = Evaluator(self.applier(process_ports), self.new_id)
        return Poller(
            process_ports.timers, process_ports.partitions, evaluator, timedelta(seconds=ahead)
        )

    def executor(self, name: str = "e1", ports: Ports | None = None) -> Executor:
        process_ports = ports or self.memory.ports
        return an_executor(process_ports, self.applier(process_ports), self.new_id, name)

    def interrupted(self, process: str) -> Ports:
        return with_faults(self.memory.ports, self.plan, process)

    def planner(self, owner: str = "planner") -> Planner:
        return Planner(self.memory.partitions, owner)

    def tick(self, owner: str = "planner") -> int:
        """Run the planner's tick, and give its partitions to the poller."""
        leases = self.planner(owner).tick(self.now).leases
        for lease in leases:
            self.poller.add_partition(lease)
        return len(leases)

    def step(self) -> None:
        """Pass the recorded wake-ups to the poller, and step it."""
        new_timers = self.memory.wakeups.new_timers
        self.poller.add_timers(list(new_timers))
        new_timers.clear()
        self.poller.step(self.now)

    def step_until(self, at: float, every: float = 5) -> None:
        """Step until `at` seconds after noon."""
        while self.now < NOON + timedelta(seconds=at):
            self.wait(every)
            self.step()

    def submit(self, tenant: str = TENANT, **fields: Any) -> JobKey:
        document = {"name": own_name("a job"), "schedule_type": "IMMEDIATE", **fields}
        (view,) = self.jobs.submit(tenant, "client", [Submission(document)])
        assert not isinstance(view, Exception)
        return JobKey(tenant, view.state.job_id)

    def stored(self, key: JobKey) -> StoredState:
        return self.memory.job_states.rows[key]

    def state(self, key: JobKey) -> JobState:
        return self.stored(key).state

    def timers(self) -> list[Timer]:
        return sorted(self.memory.timers.all(), key=lambda timer: timer.sort_key)

    def evaluate(self, *timers: Timer) -> None:
        Evaluator(self.applier(), self.new_id).evaluate_timers(timers or self.timers())

    def message(self) -> Message:
        """Return the only message in the queue."""
        (entry,) = self.memory.run_queue.entries
        return entry.message

    def claim(self, name: str = "e1") -> Assignment:
        (assignment,) = self.executor(name).claim([self.message()]).claimed
        return assignment


def a_finish(assignment: Assignment, status: Any, output: str = "") -> FinishedAttempt:
    run = assignment.run
    return FinishedAttempt(
        assignment.key, run.run_id, run.token, status, True, Detail(output_blob=output)
    )


def _no_log(event: str, **fields: Any) -> None:
    pass


class _Silent:
    def stats(self, tenant: str, now: datetime) -> Any:
        raise NotImplementedError

    def health(self, now: datetime) -> Any:
        raise NotImplementedError
