"""Delivers the notifications of an invocation, each in a thread beside the runs."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.execution.notifications import find_delivery
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.notifications import Notification, WebhookSecrets
from punctual.lambdas.executor import timing
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.executor.telemetry import log_abandoned_webhook
from punctual.lambdas.executor.threads import TaskRunner
from punctual.lambdas.telemetry import Telemetry
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.webhook import WEBHOOK_TIMEOUT, NoLog, delivery_result, webhook_attempt


class WebhookDelivery(NamedTuple):
    """One SQS delivery of a notification. Earlier deliveries count as earlier tries."""

    id: str
    receipt_handle: str
    queue_url: str
    receive_count: int
    notification: Notification


class WebhookDeliveries:
    """Delivers notifications. Each SQS delivery counts as a try, also if the executor crashes.

    The loop handles the answers. A target may take ten seconds to time out, and delays no claim and
    no end of a run.
    """

    def __init__(
        self,
        deliveries: Sequence[WebhookDelivery],
        *,
        job_states: JobStates,
        history: History,
        messages: MessageBatch,
        attempt_runner_for: Callable[[str], AttemptRunner],
        secrets: WebhookSecrets,
        task_runner: TaskRunner,
        ends_steady: float,
        clock: Clock,
        steady: Callable[[], float],
        log: Telemetry,
    ) -> None:
        self._job_states = job_states
        self._history = history
        self._clock = clock
        self._steady = steady
        self._log = log
        self._messages = messages
        self._attempt_runner_for = attempt_runner_for
        self._secrets = secrets
        self._task_runner = task_runner
        self._ends_steady = ends_steady
        self._waiting = list(deliveries)
        self._active: list[WebhookDelivery] = []
        self._results: deque[tuple[WebhookDelivery, Outcome | Exception | None]] = deque()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._active)

    @property
    def unfinished(self) -> list[WebhookDelivery]:
        return [*self._waiting, *self._active]

    def advance(self) -> None:
        """Start new deliveries and settle finished ones."""
        waiting, self._waiting = self._waiting, []
        for delivery in waiting:
            self._start(delivery)
        while self._results:
            delivery, outcome = self._results.popleft()
            if delivery in self._active:
                self._active.remove(delivery)
                self._settle(delivery, outcome)
        if self._active and self._steady() >= self._ends_steady - timing.NO_RETRY_SECONDS:
            self._messages.back_off(self._active)
            self._active.clear()

    def _start(self, delivery: WebhookDelivery) -> None:
        seconds_left = self._ends_steady - timing.END_RESERVE_SECONDS - self._steady()
        if seconds_left < timing.MIN_RUN_SECONDS:
            self._messages.retry_at(delivery, self._clock())
            return
        self._active.append(delivery)
        timeout = min(WEBHOOK_TIMEOUT, timedelta(seconds=seconds_left))
        self._task_runner.start(partial(self._deliver, delivery, timeout))

    def _deliver(self, delivery: WebhookDelivery, timeout: timedelta) -> None:
        """Deliver a notification in a thread. `deque.append` is atomic."""
        try:
            self._results.append((delivery, self._call_target(delivery.notification, timeout)))
        except Exception as error:
            self._results.append((delivery, error))

    def _call_target(self, notification: Notification, timeout: timedelta) -> Outcome | None:
        now = self._clock()
        target = find_delivery(self._job_states, self._history, notification, now)
        if target is None:
            return None
        # imported on first use, since most invocations deliver no webhooks
        from punctual.web.views.event import notification_json

        data, secrets = (
            notification_json(notification, target.run),
            self._secrets(notification.tenant),
        )
        attempt = webhook_attempt(notification, target.url, data, secrets, now, timeout)
        attempt_runner = self._attempt_runner_for(notification.tenant)
        return attempt_runner.run_as_written(attempt, StopSignal(), NoLog())

    def _settle(self, delivery: WebhookDelivery, outcome: Outcome | Exception | None) -> None:
        notification, tries = delivery.notification, delivery.receive_count
        ids = {
            "job_id": notification.job_id,
            "run_id": notification.run_id,
            "tenant": notification.tenant,
        }
        if isinstance(outcome, Exception):
            # A bug in the delivery must not fail the runs of the batch.
            is_unavailable = isinstance(outcome, Unavailable)
            error = str(outcome) if is_unavailable else type(outcome).__name__
            (self._log if is_unavailable else self._log.error)(
                "webhook_not_begun", **ids, error=error
            )
            self._messages.back_off([delivery])
            return
        if outcome is None:
            self._log("webhook_not_wanted", **ids)
            return
        verdict = delivery_result(outcome, notification, tries)
        if verdict.retry_after is not None:
            self._messages.retry_at(delivery, self._clock() + verdict.retry_after)
        elif verdict.delivered:
            self._log("webhook_delivered", **ids, tries=tries)
        else:
            log_abandoned_webhook(self._log, notification, verdict.error, tries)
