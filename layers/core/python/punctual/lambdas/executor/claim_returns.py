"""Returns claims of runs that an executor could not begin."""

from punctual.domain.errors import Unavailable
from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import Run
from punctual.engine.changes.change import Result
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.telemetry import Telemetry


class ClaimReturns:
    """Returns claims, so that another executor takes the runs at once or after a delay."""

    def __init__(
        self, *, executor: Executor, messages: MessageBatch, clock: Clock, log: Telemetry
    ) -> None:
        self._executor = executor
        self._messages = messages
        self._clock = clock
        self._log = log

    def return_claim(
        self, key: JobKey, run: Run, begun: bool, is_delayed: bool = False, unstarted: bool = False
    ) -> Result:
        self._log("run_given_back", job_id=key.job_id, run_id=run.run_id, begun=begun)
        return self._executor.return_claim(key, run.run_id, run.token, begun, is_delayed, unstarted)

    def return_failed_start(self, key: JobKey, run: Run, error: str) -> Result:
        self._log.error("start_failed", job_id=key.job_id, run_id=run.run_id, reason=error)
        return self._executor.return_failed_start(key, run.run_id, run.token, error)

    def await_resources(self, key: JobKey, run: Run) -> Result:
        self._log("run_without_room", job_id=key.job_id, run_id=run.run_id)
        return self._executor.await_resources(key, run.run_id, run.token)

    def return_unbegun(
        self, delivery: Delivery, run: Run, is_delayed: bool, lacks_resources: bool = False
    ) -> None:
        """Return a claim without an attempt.

        `is_delayed` delays the run if no executor could begin it now. With `lacks_resources` it
        waits for room.
        """
        key = JobKey(delivery.message.tenant, delivery.message.job_id)
        try:
            result = (
                self.await_resources(key, run)
                if lacks_resources
                else self.return_claim(key, run, begun=False, is_delayed=is_delayed)
            )
        except Unavailable:
            self._messages.back_off([delivery])
            return
        if not result.effects_done:
            self._messages.retry_at(delivery, self._clock() + RUN_LEASE)
