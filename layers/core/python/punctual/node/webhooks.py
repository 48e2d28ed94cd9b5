"""Delivers the node's notifications, a few at a time, each in a thread, until each is delivered."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.execution.notifications import find_delivery
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import WebhookSecrets
from punctual.node.sqlite.notifications import PendingNotification, SqliteNotifications
from punctual.node.sqlite.transaction import Transaction
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.webhook import NoLog, delivery_result, webhook_attempt
from punctual.web.views.event import notification_json

MAX_CONCURRENT_WEBHOOKS = 8
WEBHOOK_RETRY_DELAY = timedelta(minutes=1)


def no_webhook_secrets(_tenant: str) -> Sequence[bytes]:
    raise Unavailable("This node has no key to sign webhooks with.")


class _FinishedDelivery(NamedTuple):
    pending: PendingNotification
    outcome: Outcome


class Webhooks:
    """Delivers notifications by webhook.

    Only the node's loop may call it. An interrupted delivery is repeated after a crash.
    """

    def __init__(
        self,
        *,
        transaction: Transaction,
        job_states: JobStates,
        history: History,
        notifications: SqliteNotifications,
        attempt_runner: AttemptRunner,
        secrets: WebhookSecrets,
        log: Log,
        wake: Callable[[], None],
    ) -> None:
        self._transaction = transaction
        self._job_states = job_states
        self._history = history
        self._notifications = notifications
        self._attempt_runner = attempt_runner
        self._secrets = secrets
        self._log = log
        self._wake = wake
        self._workers = Workers("webhook", MAX_CONCURRENT_WEBHOOKS)
        self._stop_signals: dict[int, StopSignal] = {}
        self._finished: deque[_FinishedDelivery] = deque()
        self._closing = False

    def step(self, now: datetime) -> None:
        """Settle finished deliveries and start due ones.

        Only committed notifications count, because the end of a run may be rolled back.
        """
        finished = list(self._finished)
        due_at = self.next_at()
        if not finished and (due_at is None or due_at > now):
            return
        with self._transaction:
            for delivery in finished:
                self._finish_delivery(delivery, now)
        for delivery in finished:
            self._finished.popleft()
            self._stop_signals.pop(delivery.pending.row_number, None)
        due_at = self.next_at()
        if due_at is not None and due_at <= now:
            self._start_due(now)

    def next_at(self) -> datetime | None:
        """Return when the next notification is due.

        It is None if none waits, all threads are busy, or the node closes.
        """
        if self._closing or len(self._stop_signals) >= MAX_CONCURRENT_WEBHOOKS:
            return None
        return self._notifications.next_at(self._stop_signals)

    def on_clock_set_back(self, now: datetime) -> None:
        """Make all waiting notifications due by `now`.

        Their times came from the clock before it was set.
        """
        self._notifications.make_due_by(now)

    def close(self) -> None:
        """Interrupt current deliveries. They are repeated after the next start."""
        self._closing = True
        for stop in self._stop_signals.values():
            stop.request_stop("SHUTDOWN")

    @property
    def is_idle(self) -> bool:
        return not self._stop_signals

    def _start_due(self, now: datetime) -> None:
        deliveries: list[tuple[PendingNotification, Attempt]] = []
        with self._transaction:
            free_workers = MAX_CONCURRENT_WEBHOOKS - len(self._stop_signals)
            for pending in self._notifications.due(now, free_workers, self._stop_signals):
                attempt = self._attempt(pending, now)
                if attempt is not None:
                    deliveries.append((pending, attempt))
        for pending, attempt in deliveries:
            stop = self._stop_signals[pending.row_number] = StopSignal()
            self._workers.start(partial(self._deliver, pending, attempt, stop))

    def _attempt(self, pending: PendingNotification, now: datetime) -> Attempt | None:
        """Return the attempt to deliver a notification, or None.

        It is None if the delivery is not wanted any more. It is also None if the key or the job
        cannot be read. Then the delivery is tried again later, and the step continues.
        """
        notification = pending.notification
        ids = {"job_id": notification.job_id, "run_id": notification.run_id}
        try:
            secrets = self._secrets(notification.tenant)
            target = find_delivery(self._job_states, self._history, notification, now)
        except Unavailable as error:
            self._log("webhook_not_begun", **ids, error=error.message)
            self._notifications.postpone(
                pending.row_number, pending.tries, now + WEBHOOK_RETRY_DELAY
            )
            return None
        if target is None:
            self._log("webhook_not_wanted", **ids)
            self._notifications.remove(pending.row_number)
            return None
        return webhook_attempt(
            notification, target.url, notification_json(notification, target.run), secrets, now
        )

    def _deliver(self, pending: PendingNotification, attempt: Attempt, stop: StopSignal) -> None:
        """Deliver a notification. A thread calls this; the append of a deque is atomic."""
        outcome = self._attempt_runner.run_as_written(attempt, stop, NoLog())
        self._finished.append(_FinishedDelivery(pending, outcome))
        self._wake()

    def _finish_delivery(self, delivery: _FinishedDelivery, now: datetime) -> None:
        pending, outcome = delivery
        if outcome.status == "CANCELLED":
            return  # the delivery was interrupted
        tries = pending.tries + 1
        verdict = delivery_result(outcome, pending.notification, tries)
        ids = {
            "job_id": pending.notification.job_id,
            "run_id": pending.notification.run_id,
            "tries": tries,
        }
        if verdict.retry_after is not None:
            self._notifications.postpone(pending.row_number, tries, now + verdict.retry_after)
            return
        self._notifications.remove(pending.row_number)
        if verdict.delivered:
            self._log("webhook_delivered", **ids)
        else:
            self._log("webhook_given_up", **ids, error=verdict.error)
