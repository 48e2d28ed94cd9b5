"""The claims of external executors, over the in-memory store."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from punctual.auth.claim_tokens import ClaimTokens
from punctual.domain.claims import ClaimIdentity
from punctual.domain.run import Run
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.execution.claims import Claims
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.log import no_log
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from tests.support.names.own_names import own_name
from tests.support.ports import Ports, a_change_applier, an_executor
from tests.support.web_world import WebWorld

TOKEN_KEY = bytes(range(32))
HANDED_OUT_LEASE = timedelta(seconds=75)  # the time that an external process has to start


class ClaimsScene:
    """A store with jobs, the executor that claims their runs, and the calls by claim."""

    def __init__(self, hands_over_scripts: bool = False) -> None:
        self.world = WebWorld()  # its clock stands until a test moves it
        self.ports: Ports = self.world.memory.ports
        self._applier = a_change_applier(self.ports, self.world.clock, self._monotonic)
        self.executor = an_executor(
            self.ports, self._applier, self.world.new_id, "executor-1", hands_over_scripts
        )
        self.tokens = ClaimTokens(lambda: TOKEN_KEY)
        self.claims = Claims(
            executor=self.executor,
            job_states=self.ports.job_states,
            history=self.ports.history,
            blobs=self.ports.blobs,
            reader=self.tokens,
            clock=self.world.clock,
            log=no_log,
        )

    def _monotonic(self) -> float:
        return self.world.now.timestamp()

    @property
    def blobs(self) -> dict[str, bytes]:
        return self.world.memory.blobs.blobs

    def wait(self, seconds: float) -> None:
        self.world.now += timedelta(seconds=seconds)

    def submit(self, tenant: str = "acme", **document: Any) -> JobKey:
        view = self.world.submit(
            tenant, **{"name": own_name("job"), "schedule_type": "IMMEDIATE", **document}
        )
        return JobKey(tenant, view.state.job_id)

    def claim_runs(self) -> list[Assignment]:
        """Claim all queued runs, as the executor function does, with a timer for each lease."""
        deliveries = self.world.memory.run_queue.receive(1_000)
        claimed = self.executor.claim([delivery.message for delivery in deliveries]).claimed
        for delivery in deliveries:
            self.world.memory.run_queue.acknowledge(delivery)
        self.executor.renew(
            [(each.key, each.run.run_id, each.run.token) for each in claimed],
            is_first=True,
            lease=HANDED_OUT_LEASE,
        )
        return list(claimed)

    def start_run(self, tenant: str = "acme", **document: Any) -> str:
        """Submit a job, claim its run and return the claim."""
        key = self.submit(tenant, **document)
        (assignment,) = [each for each in self.claim_runs() if each.key == key]
        return self.sign(assignment)

    def sign(self, assignment: Assignment) -> str:
        run = assignment.run
        return self.tokens.sign(ClaimIdentity(*assignment.key, run.run_id, run.attempt, run.token))

    def identity(self, claim: str) -> ClaimIdentity:
        identity = self.tokens.read(claim)
        assert identity is not None
        return identity

    def live_run(self, claim: str) -> Run | None:
        identity = self.identity(claim)
        stored = self.ports.job_states.load([JobKey(identity.tenant, identity.job_id)])
        runs = [run for each in stored.values() for run in each.state.runs]
        return next((run for run in runs if run.run_id == identity.run_id), None)

    def row(self, claim: str) -> RunRow | None:
        key = RunKey(*self.identity(claim)[:3])
        return self.ports.history.get([key], self.world.now).get(key)

    def log_text(self, claim: str, after: int = 0) -> bytes:
        tenant, job_id, run_id = self.identity(claim)[:3]
        return self.world.search.logs(tenant, job_id, run_id, after).data

    def evaluate(self) -> None:
        """Evaluate all jobs with a due timer, as a poller does."""
        timers = [timer for timer in self.world.memory.timers.all() if timer.at <= self.world.now]
        Evaluator(self._applier, self.world.new_id).evaluate_timers(timers)

    def snapshot(self) -> Mapping[str, Any]:
        """Return all that a claim could change: job states, leases, history and blobs."""
        memory = self.world.memory
        return {
            "states": dict(memory.job_states.rows),
            "runs": dict(memory.history.rows),
            "attempts": dict(memory.history.attempt_rows),
            "blobs": dict(memory.blobs.blobs),
        }
