"""Delivers the notifications of an invocation, each in a thread beside the runs."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.execution.notifications import find
from punctual.engine.ports.notifications import Notification, Secrets
from punctual.lambdas.executor import timing as pace
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.executor.telemetry import tell_given_up
from punctual.lambdas.executor.threads import TaskRunner
from punctual.lambdas.runtime import Runtime
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.registry import Registry
from punctual.tasks.webhook import TIMEOUT, NoLog, judged, webhook


class WebhookDelivery(NamedTuple):
    """One SQS delivery of a notification. Earlier deliveries count as earlier tries."""

    id: str
    handle: str
    url: str
    receives: int
    notice: Notification


class WebhookDeliveries:
    """Delivers notifications. Each SQS delivery counts as a try, also if the executor crashes.

    The loop handles the answers. A target may take ten seconds to time out, and delays no claim and
    no end of a run.
    """

    def __init__(
        self,
        runtime: Runtime,
        mail: MessageBatch,
        tasks: Callable[[str], Registry],
        secrets: Secrets,
        hands: TaskRunner,
        over: float,
        errands: Sequence[WebhookDelivery],
    ) -> None:
        self._runtime = runtime
        self._tell = runtime.tell
        self._mail = mail
        self._tasks = tasks
        self._secrets = secrets
        self._hands = hands
        self._over = over
        self._waiting = list(errands)
        self._under_way: list[WebhookDelivery] = []
        self._said: deque[tuple[WebhookDelivery, Outcome | Exception | None]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._under_way)

    @property
    def held(self) -> list[WebhookDelivery]:
        return [*self._waiting, *self._under_way]

    def tend(self) -> None:
        """Start new deliveries and settle finished ones."""
        waiting, self._waiting = self._waiting, []
        for errand in waiting:
            self._begin(errand)
        while self._said:
            errand, answer = self._said.popleft()
            if errand in self._under_way:
                self._under_way.remove(errand)
                self._settle(errand, answer)
        if self._under_way and self._runtime.steady() >= self._over - pace.LAST:
            self._mail.later(self._under_way)
            self._under_way.clear()

    def _begin(self, errand: WebhookDelivery) -> None:
        left = self._over - pace.MARGIN - self._runtime.steady()
        if left < pace.LEAST:
            self._mail.again(errand, self._runtime.clock())
            return
        self._under_way.append(errand)
        timeout = min(TIMEOUT, timedelta(seconds=left))
        self._hands.start(partial(self._do, errand, timeout))

    def _do(self, errand: WebhookDelivery, timeout: timedelta) -> None:
        """Deliver a notification in a thread. `deque.append` is atomic."""
        try:
            self._said.append((errand, self._told(errand.notice, timeout)))
        except Exception as error:
            self._said.append((errand, error))

    def _told(self, notice: Notification, timeout: timedelta) -> Outcome | None:
        now = self._runtime.clock()
        found = find(self._runtime.ports.heads, self._runtime.ports.history, notice, now)
        if found is None:
            return None
        # imported on first use, since most invocations deliver no webhooks
        from punctual.web.views.event import notification_json

        data, secrets = notification_json(notice, found.run), self._secrets(notice.tenant)
        attempt = webhook(notice, found.url, data, secrets, now, timeout)
        return self._tasks(notice.tenant).run(attempt, StopSignal(), NoLog())

    def _settle(self, errand: WebhookDelivery, answer: Outcome | Exception | None) -> None:
        notice, tries = errand.notice, errand.receives
        ids = {"job_id": notice.job_id, "run_id": notice.run_id, "tenant": notice.tenant}
        if isinstance(answer, Exception):
            # A bug in the delivery must not fail the runs of the batch.
            known = isinstance(answer, Unavailable)
            error = str(answer) if known else type(answer).__name__
            (self._tell if known else self._tell.problem)("webhook_not_begun", **ids, error=error)
            self._mail.later([errand])
            return
        if answer is None:
            self._tell("webhook_not_wanted", **ids)
            return
        verdict = judged(answer, notice, tries)
        if verdict.again is not None:
            self._mail.again(errand, self._runtime.clock() + verdict.again)
        elif verdict.told:
            self._tell("webhook_delivered", **ids, tries=tries)
        else:
            tell_given_up(self._tell, notice, verdict.error, tries)
