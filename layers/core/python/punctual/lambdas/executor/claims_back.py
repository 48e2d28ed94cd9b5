"""Returns claims, so that another executor takes the runs at once or after a delay."""

from punctual.domain.durations import LEASE
from punctual.domain.errors import Unavailable
from punctual.domain.run import Run
from punctual.engine.changes.change import Result
from punctual.engine.ports.rows import Key
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.runtime import Runtime


class Returns:
    def __init__(self, runtime: Runtime, mail: MessageBatch) -> None:
        self._executor = runtime.executor
        self._clock = runtime.clock
        self._tell = runtime.tell
        self._mail = mail

    def give_back(
        self, key: Key, run: Run, begun: bool, waits: bool = False, unstarted: bool = False
    ) -> Result:
        self._tell("run_given_back", job_id=key.job_id, run_id=run.run_id, begun=begun)
        return self._executor.release(key, run.run_id, run.token, begun, waits, unstarted)

    def unbegun(self, delivery: Delivery, run: Run, waits: bool) -> None:
        """Return a claim without an attempt.

        `waits` delays the run if no executor could begin it now.
        """
        key = Key(delivery.message.tenant, delivery.message.job_id)
        try:
            result = self.give_back(key, run, begun=False, waits=waits)
        except Unavailable:
            self._mail.later([delivery])
            return
        if not result.effects_done:
            self._mail.again(delivery, self._clock() + LEASE)
