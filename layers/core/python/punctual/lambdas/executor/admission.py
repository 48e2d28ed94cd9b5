"""Which of an invocation's messages may be claimed now; the others come again, or wait here.

What a limit holds back is no failure: however often it was received, it is never taken for dead.
Before it would be, its message is given up for a look, which sends the run anew.
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

RECEIVED = 40  # times; a queue takes a message for dead after 50
SPREAD = 30.0  # seconds over which those that come again are spread at the most
BEHIND = 2.0  # seconds that each step of priority comes later
AGAIN = 3.0  # seconds until a renewal that did nothing is tried again
PATIENCE = 2.0  # seconds that a run waits here for others of its batch to end

Meanwhile = Callable[[Callable[[], dict[str, Permitted]]], dict[str, Permitted]]


class Admission:
    """`release` each that was admitted, once: by the nonce of its claim."""

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
        self._admitted: dict[str, str] = {}  # tenants
        self._until = self._steady() + PATIENCE
        self._tend_at = 0.0

    def __enter__(self) -> None:
        """For one invocation."""

    def __exit__(self, *_: object) -> None:
        """It is over, perhaps by an error: nothing runs here until the next."""
        if self._permits is not None:
            self.release(list(self._admitted), started=True)
            self._permits.rest()

    def admit(
        self, due: dict[str, Delivery], waiting: dict[str, Delivery], meanwhile: Meanwhile
    ) -> dict[str, Delivery]:
        """Those to be claimed now; what is handed back waits here no more.

        `meanwhile` makes a call that may take its time.
        """
        permits = self._permits
        if permits is None:
            return due
        asking = [one for nonce, one in due.items() if nonce not in self._admitted]
        wanted = Counter(one.message.tenant for one in asking)
        # A batch comes from one queue.
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
        """For one of its own that runs here to end."""
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
                at = now + timedelta(hours=1)  # nine times are left: most of a day
        self._mail.again(one, at)

    def release(self, nonces: Iterable[str], started: bool) -> None:
        """They have ended, or were not begun."""
        for nonce in nonces:
            tenant = self._admitted.pop(nonce, None)
            if tenant is not None and self._permits is not None:
                self._permits.end(tenant, started)

    def is_to_tend(self) -> bool:
        """Whether places of what runs are to be renewed, and nobody is at it."""
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
