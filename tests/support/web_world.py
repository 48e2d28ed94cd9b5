"""The engine over the simulation's in-memory store, for tests of the web layer."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from punctual.domain.identifiers import sortable_id
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.commands.tokens import Tokens
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.monitor import Health, Stats
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.queries.views import JobView
from punctual.node.features import NODE_FEATURES
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo
from tests.support.ports import (
    Ports,
    a_change_applier,
    an_executor,
    artifact_commands,
    job_commands,
    job_queries,
)
from tests.support.simulation.memory import Memory
from tests.support.simulation.port_faults import Call, Plan, port_with_faults, with_faults
from tests.support.simulation.small_ports import MemoryTokens

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class FailingPlan(Plan):
    """A plan that counts the calls of the store. While `error` is set, each call raises it."""

    error: Exception | None = None

    def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self.error is not None:
            raise self.error
        return super().run(call, real, args)


class FixedMonitor:
    """Reports one started run and a health without warnings."""

    def stats(self, _tenant: str, now: datetime) -> Stats:
        lateness = {"p50": 0.1, "p99": 0.2, "max": 0.3}
        minute = {"minute": now, "started": 1, "succeeded": 1, "failed": 0, "lateness_ms": lateness}
        queue = {"depth": 0, "oldest_seconds": 0}
        return Stats({"SCHEDULED": 1}, {}, [minute], lateness, queue, [])

    def health(self, now: datetime) -> Health:
        return Health("ok", 0.5, now, now, ("http", "event"))


class WebWorld:
    """The use cases that routes call. The clock stands at `now`, which a test may set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.plan = FailingPlan()
        self.memory = Memory(self.clock)
        self._numbers = count(1)
        ports = with_faults(self.memory.ports, self.plan, "web")
        monitor = port_with_faults(FixedMonitor(), self.plan, "web", "monitor")
        tokens = port_with_faults(MemoryTokens(), self.plan, "web", "tokens")
        self.search = job_queries(ports, self.clock, monitor)
        applier = a_change_applier(ports, self.clock, self._monotonic)
        self.artifacts = artifact_commands(ports, self.clock, self.new_id)
        self.jobs = job_commands(
            ports, applier, self.search, self.clock, self.new_id, self.artifacts
        )
        self.tokens = Tokens(
            tokens,
            lambda: bytes(32),
            self.clock,
            self.new_id,
            self._random_bytes,
            "local",
            ports.audit_log,
        )

    def clock(self) -> datetime:
        return self.now

    def _monotonic(self) -> float:
        return (self.now - NOON).total_seconds()

    def new_id(self) -> str:
        return sortable_id(self.now, next(self._numbers).to_bytes(10, "big"))

    def _random_bytes(self, size: int) -> bytes:
        return next(self._numbers).to_bytes(size, "big")

    def services(self, max_response_bytes: int | None = None) -> Services:
        return Services(
            self.jobs,
            self.search,
            self.clock,
            NODE_FEATURES,
            InstallationInfo("0", ()),
            self.tokens,
            max_response_bytes=max_response_bytes,
            artifacts=self.artifacts,
        )

    def submit(self, tenant: str, caller: str = "me", **document: Any) -> JobView:
        (view,) = self.jobs.submit(tenant, caller, [Submission(document)])
        assert isinstance(view, JobView), view
        return view

    def finish_runs(self, detail: Detail, status: RunStatus = RunStatus.SUCCESS) -> None:
        """Claim every queued run, and finish it with this result."""
        ports: Ports = self.memory.ports
        applier = a_change_applier(ports, self.clock, self._monotonic)
        executor = an_executor(ports, applier, self.new_id, "executor-1")
        deliveries = self.memory.run_queue.receive(1_000)
        claimed = executor.claim([delivery.message for delivery in deliveries]).claimed
        assert len(claimed) == len(deliveries) > 0
        executor.finish(
            [
                FinishedAttempt(run.key, run.run.run_id, run.run.token, status, False, detail)
                for run in claimed
            ]
        )
        for delivery in deliveries:
            self.memory.run_queue.acknowledge(delivery)

    @property
    def stored_jobs(self) -> set[JobKey]:
        rows = self.memory.job_states.rows
        return {key for key, stored in rows.items() if not stored.state.is_blank}
