"""Decides which messages of an invocation may be claimed now. The others wait or are retried.

A message that a limit delays has not failed, so it must not become a dead letter. After `RECEIVED`
deliveries it is deleted. A timer for an evaluation then sends the run again.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from hashlib import blake2b

from punctual.domain.errors import Unavailable
from punctual.engine.quotas.run_permits import PLACE_RETRY_SECONDS, Permitted, RunPermits
from punctual.lambdas.executor.attempt import Delivery
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric

RECEIVED = 40  # deliveries; the queue makes a message a dead letter after 50
SPREAD = 30.0  # longest spread, in seconds, of delayed messages
BEHIND = 2.0  # seconds that each step of priority adds
AGAIN = 3.0  # seconds until a renewal is tried again
PATIENCE = 2.0  # seconds that a run waits in this invocation for another run to end

Meanwhile = Callable[[Callable[[], dict[str, Permitted]]], dict[str, Permitted]]


class Admission:
    """Asks for run permits. The caller passes each admitted nonce to `release` once."""

    def __init__(
        self,
        runtime: Runtime,
        permits: RunPermits | None,
        mail: MessageBatch,
    ) -> None:
        self._permits = permits
        self._executor = runtime.executor
        self._mail = mail
        self._clock = runtime.clock
        self._steady = runtime.steady
        self._tell = runtime.tell
        self._queues = {url: name for name, url in runtime.settings.queues.items()}
        self._admitted: dict[str, str] = {}  # tenant by nonce
        self._until = self._steady() + PATIENCE
        self._tend_at = 0.0

    def __enter__(self) -> None:
        """Begin an invocation."""

    def __exit__(self, *_: object) -> None:
        """Release all permits at the end of the invocation, also after an error."""
        if self._permits is not None:
            self.release(list(self._admitted), started=True)
            self._permits.rest()

    def admit(
        self, due: dict[str, Delivery], waiting: dict[str, Delivery], meanwhile: Meanwhile
    ) -> dict[str, Delivery]:
        """Return the messages to claim now. Remove the returned messages from `waiting`.

        `meanwhile` carries out a call that may be slow.
        """
        permits = self._permits
        if permits is None:
            return due
        asking = [one for nonce, one in due.items() if nonce not in self._admitted]
        wanted = Counter(one.message.tenant for one in asking)
        # All messages of a batch come from one queue.
        queues = {one.message.tenant: self._queues.get(one.url, "") for one in asking}
        permitted = meanwhile(
            lambda: {
                tenant: permits.ask(tenant, count, queues[tenant])
                for tenant, count in wanted.items()
            }
        )
        left = {tenant: one.number for tenant, one in permitted.items()}
        found = {}
        for nonce, one in sorted(due.items(), key=_urgency):
            tenant = one.message.tenant
            if nonce in self._admitted:
                found[nonce] = one
            elif left[tenant]:
                left[tenant] -= 1
                self._admitted[nonce] = tenant
                found[nonce] = one
            elif not self._may_wait_here(tenant, permitted[tenant].again_after):
                self._hand_back(one, permitted[tenant].again_after)
                waiting.pop(nonce)
        return found

    def _may_wait_here(self, tenant: str, after: float) -> bool:
        """Return whether the message may wait here for another run of its tenant to end."""
        is_near = after <= PLACE_RETRY_SECONDS and self._steady() < self._until
        return is_near and tenant in self._admitted.values()

    def _hand_back(self, one: Delivery, after: float) -> None:
        message = one.message
        self._tell.measure(Metric.LIMITED)
        spread = min(SPREAD, 2.0 ** min(one.receives, 6)) * _fraction(message.run_id, one.receives)
        now = self._clock()
        at = now + timedelta(seconds=after + spread + BEHIND * message.priority)
        if one.receives >= RECEIVED:
            try:
                self._executor.look_later([message], at)
                self._mail.acknowledge([one])
                return
            except Unavailable as error:
                self._tell.problem("look_not_put", run_id=message.run_id, error=error.message)
                at = now + timedelta(hours=1)  # nine deliveries are left, enough for most of a day
        self._mail.again(one, at)

    def release(self, nonces: Iterable[str], started: bool) -> None:
        """Release the permits of runs that have ended or did not start."""
        for nonce in nonces:
            tenant = self._admitted.pop(nonce, None)
            if tenant is not None and self._permits is not None:
                self._permits.end(tenant, started)

    def is_to_tend(self) -> bool:
        """Return whether permits are due for renewal and no renewal is active."""
        if self._permits is None or self._steady() < self._tend_at or not self._permits.aging:
            return False
        self._tend_at = self._steady() + AGAIN
        return True

    def tend(self) -> None:
        if self._permits is not None:
            self._permits.tend()


def _urgency(one: tuple[str, Delivery]) -> tuple[int, datetime, str]:
    nonce, delivery = one
    return delivery.message.priority, delivery.message.due_at, nonce


def _fraction(run_id: str, receives: int) -> float:
    digest = blake2b(f"{run_id} {receives}".encode(), digest_size=2).digest()
    return int.from_bytes(digest) / 65_536
