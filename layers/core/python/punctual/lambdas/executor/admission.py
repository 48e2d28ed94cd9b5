"""Decides which messages of an invocation may be claimed now. The others wait or are retried.

A message that a limit delays has not failed, so it must not become a dead letter. It is deleted
after `MAX_LIMITED_RECEIVES` deliveries. A timer for an evaluation then sends the run again.

A claimed script also needs a place of its function. Without one its run waits (`RESOURCES`). A run
that is handed over takes its places along.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b

from punctual.domain.errors import Unavailable
from punctual.engine.execution.executor import Assignment, Executor
from punctual.engine.ports.clock import Clock
from punctual.engine.quotas.run_permits import (
    PLACE_RETRY_SECONDS,
    Handover,
    PermitGrant,
    RunPermits,
)
from punctual.lambdas.executor.attempt import Delivery, is_script
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.telemetry import Metric, Telemetry
from punctual.tasks.limits import SCRIPT_FUNCTIONS
from punctual.tasks.script_function import needs_container

MAX_LIMITED_RECEIVES = 40  # deliveries; the queue makes a message a dead letter after 50
MAX_RETRY_SPREAD_SECONDS = 30.0  # longest spread, in seconds, of delayed messages
PRIORITY_DELAY_SECONDS = 2.0  # seconds that each step of priority adds
PERMIT_RENEWAL_RETRY_SECONDS = 3.0  # seconds until a renewal is tried again
MAX_PERMIT_WAIT_SECONDS = 2.0  # seconds that a run waits in this invocation for another run to end

# From a handover to the end of the last lease, beside the timeout of the run. A container has time
# to start and to upload its output.
SCRIPT_END_MARGIN = timedelta(minutes=5)
CONTAINER_END_MARGIN = timedelta(hours=1)

CallInBackground = Callable[[Callable[[], dict[str, PermitGrant]]], dict[str, PermitGrant]]


class Admission:
    """Asks for run permits. The caller passes each admitted nonce to `release` once."""

    def __init__(
        self,
        *,
        permits: RunPermits | None,
        script_permits: RunPermits | None,
        executor: Executor,
        messages: MessageBatch,
        queues: Mapping[str, str],
        function_memory_mb: int,
        clock: Clock,
        steady: Callable[[], float],
        log: Telemetry,
    ) -> None:
        """`queues` maps names to URLs. `script_permits` are those of functions, by their name.

        A script that needs more than `function_memory_mb` runs in a container.
        """
        self._function_memory_mb = function_memory_mb
        self._permits = permits
        self._script_permits = script_permits
        self._executor = executor
        self._messages = messages
        self._clock = clock
        self._steady = steady
        self._log = log
        self._queues = {url: name for name, url in queues.items()}
        self._admitted: dict[str, str] = {}  # tenant by nonce
        self._scripts: dict[str, str] = {}  # function by nonce, of scripts that are waited for
        self._wait_ends_steady = self._steady() + MAX_PERMIT_WAIT_SECONDS
        self._next_renewal_steady = 0.0

    def __enter__(self) -> None:
        """Begin an invocation."""

    def __exit__(self, *_: object) -> None:
        """Release all permits at the end of the invocation, also after an error."""
        self.release([*self._admitted, *self._scripts], started=True)
        for permits in self._all_permits:
            permits.return_idle_places()

    def admit(
        self,
        due: dict[str, Delivery],
        waiting: dict[str, Delivery],
        call_in_background: CallInBackground,
    ) -> dict[str, Delivery]:
        """Return the messages to claim now. Remove the returned messages from `waiting`.

        `call_in_background` carries out a call that may be slow.
        """
        permits = self._permits
        if permits is None:
            return due
        requesting = [delivery for nonce, delivery in due.items() if nonce not in self._admitted]
        requested = Counter(delivery.message.tenant for delivery in requesting)
        # All messages of a batch come from one queue.
        queues = {
            delivery.message.tenant: self._queues.get(delivery.queue_url, "")
            for delivery in requesting
        }
        permitted = call_in_background(
            lambda: {
                tenant: permits.request(tenant, count, queues[tenant])
                for tenant, count in requested.items()
            }
        )
        remaining = {tenant: answer.number for tenant, answer in permitted.items()}
        admitted = {}
        for nonce, delivery in sorted(due.items(), key=_urgency):
            tenant = delivery.message.tenant
            if nonce in self._admitted:
                admitted[nonce] = delivery
            elif remaining[tenant]:
                remaining[tenant] -= 1
                self._admitted[nonce] = tenant
                admitted[nonce] = delivery
            elif not self._may_wait_here(tenant, permitted[tenant].retry_after_seconds):
                self._delay(delivery, permitted[tenant].retry_after_seconds)
                waiting.pop(nonce)
        return admitted

    def _may_wait_here(self, tenant: str, retry_seconds: float) -> bool:
        """Return whether the message may wait here for another run of its tenant to end."""
        is_near = retry_seconds <= PLACE_RETRY_SECONDS and self._steady() < self._wait_ends_steady
        return is_near and tenant in self._admitted.values()

    def _delay(self, delivery: Delivery, retry_seconds: float) -> None:
        message = delivery.message
        self._log.metric(Metric.LIMITED)
        spread = min(
            MAX_RETRY_SPREAD_SECONDS, 2.0 ** min(delivery.receive_count, 6)
        ) * _spread_fraction(message.run_id, delivery.receive_count)
        now = self._clock()
        retry_at = now + timedelta(
            seconds=retry_seconds + spread + PRIORITY_DELAY_SECONDS * message.priority
        )
        if delivery.receive_count >= MAX_LIMITED_RECEIVES:
            try:
                self._executor.put_resend_timers([message], retry_at)
                self._messages.acknowledge([delivery])
                return
            except Unavailable as error:
                self._log.error("look_not_put", run_id=message.run_id, error=error.message)
                retry_at = now + timedelta(
                    hours=1
                )  # nine deliveries are left, enough for most of a day
        self._messages.retry_at(delivery, retry_at)

    def needs_place(self, assignment: Assignment, is_detached: bool) -> bool:
        """Return whether a claimed run may lack a place of its function or of its tenant."""
        if self._script_permits is not None and self._script_function(assignment):
            return True
        return is_detached and assignment.run.nonce in self._admitted

    def take_script_place(self, assignment: Assignment) -> bool:
        """Hold a place of its function for a claimed script until `release`.

        Return False if none is free. Other tasks need none.
        """
        function, nonce = self._script_function(assignment), assignment.run.nonce
        if self._script_permits is None or not function:
            return True
        if not self._script_permits.request(function, 1).number:
            return False
        self._scripts[nonce] = function
        return True

    def hand_over(self, assignment: Assignment) -> bool:
        """Let the claim hold its places by itself until the run ends. Return False without room.

        A place that is not given back ends later than any end of the run.
        """
        function, nonce = self._script_function(assignment), assignment.run.nonce
        margin = SCRIPT_END_MARGIN if function else CONTAINER_END_MARGIN
        longest = timedelta(seconds=assignment.timeout_seconds) + margin
        if self._script_permits is not None and function:
            handover = self._script_permits.hand_over(function, nonce, longest, has_permit=False)
            if handover is Handover.REFUSED:
                return False
        tenant = self._admitted.get(nonce)
        if self._permits is None or tenant is None:
            return True
        handover = self._permits.hand_over(tenant, nonce, longest)
        if handover is Handover.MOVED:
            del self._admitted[nonce]
        return handover is not Handover.REFUSED

    def release(self, nonces: Iterable[str], started: bool) -> None:
        """Release the permits of runs that have ended, did not start, or are handed over."""
        for nonce in nonces:
            tenant, function = self._admitted.pop(nonce, None), self._scripts.pop(nonce, None)
            if tenant is not None and self._permits is not None:
                self._permits.end_permit(tenant, started)
            if function is not None and self._script_permits is not None:
                self._script_permits.end_permit(function, started)

    def needs_renewal(self) -> bool:
        """Return whether permits are due for renewal and no renewal is active."""
        if self._steady() < self._next_renewal_steady or not any(
            permits.needs_renewal for permits in self._all_permits
        ):
            return False
        self._next_renewal_steady = self._steady() + PERMIT_RENEWAL_RETRY_SECONDS
        return True

    def renew(self) -> None:
        for permits in self._all_permits:
            permits.renew_places()

    def _script_function(self, assignment: Assignment) -> str:
        """Return the function that runs the script, or nothing for what runs elsewhere."""
        if not is_script(assignment):
            return ""
        task = assignment.definition.document["task"]
        if needs_container(task, assignment.timeout_seconds, self._function_memory_mb):
            return ""
        return SCRIPT_FUNCTIONS.get(task["runtime"], "")

    @property
    def _all_permits(self) -> list[RunPermits]:
        return [permits for permits in (self._permits, self._script_permits) if permits is not None]


def _urgency(item: tuple[str, Delivery]) -> tuple[int, datetime, str]:
    nonce, delivery = item
    return delivery.message.priority, delivery.message.due_at, nonce


def _spread_fraction(run_id: str, receives: int) -> float:
    digest = blake2b(f"{run_id} {receives}".encode(), digest_size=2).digest()
    return int.from_bytes(digest) / 65_536
