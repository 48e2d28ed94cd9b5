"""Delivers the node's notifications, a few at a time, each in a thread, until each is delivered."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.execution.notifications import find
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.log import Log
from punctual.engine.ports.notifications import Secrets
from punctual.node.sqlite.notifications import SqliteNotifications, Waiting
from punctual.node.sqlite.transaction import Transaction
from punctual.node.workers import Workers
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.registry import Registry
from punctual.tasks.webhook import NoLog, judged, webhook
from punctual.web.views.event import notification_json

AT_A_TIME = 8
LATER = timedelta(minutes=1)


def no_secrets(_tenant: str) -> Sequence[bytes]:
    raise Unavailable("This node has no key to sign webhooks with.")


class _Said(NamedTuple):
    one: Waiting
    outcome: Outcome


class Webhooks:
    """Delivers notifications by webhook.

    Only the node's loop may call it. An interrupted delivery is repeated after a crash.
    """

    def __init__(
        self,
        *,
        unit: Transaction,
        heads: JobStates,
        history: History,
        notices: SqliteNotifications,
        registry: Registry,
        secrets: Secrets,
        log: Log,
        woken: Callable[[], None],
    ) -> None:
        self._unit = unit
        self._heads = heads
        self._history = history
        self._notices = notices
        self._registry = registry
        self._secrets = secrets
        self._log = log
        self._woken = woken
        self._workers = Workers("webhook", AT_A_TIME)
        self._under_way: dict[int, StopSignal] = {}
        self._said: deque[_Said] = deque()
        self._closing = False

    def step(self, now: datetime) -> None:
        """Settle finished deliveries and start due ones.

        Only committed notifications count, because the end of a run may be rolled back.
        """
        said = list(self._said)
        at = self.next_at()
        if not said and (at is None or at > now):
            return
        with self._unit:
            for one in said:
                self._settle(one, now)
        for one in said:
            self._said.popleft()
            self._under_way.pop(one.one.number, None)
        at = self.next_at()
        if at is not None and at <= now:
            self._begin(now)

    def next_at(self) -> datetime | None:
        """Return when the next notification is due.

        It is None if none waits, all threads are busy, or the node closes.
        """
        if self._closing or len(self._under_way) >= AT_A_TIME:
            return None
        return self._notices.next_at(self._under_way)

    def clock_was_set_back(self, now: datetime) -> None:
        """Make all waiting notifications due by `now`.

        Their times came from the clock before it was set.
        """
        self._notices.due_by(now)

    def close(self) -> None:
        """Interrupt current deliveries. They are repeated after the next start."""
        self._closing = True
        for stop in self._under_way.values():
            stop.stop("SHUTDOWN")

    @property
    def idle(self) -> bool:
        return not self._under_way

    def _begin(self, now: datetime) -> None:
        begun: list[tuple[Waiting, Attempt]] = []
        with self._unit:
            free = AT_A_TIME - len(self._under_way)
            for one in self._notices.due(now, free, self._under_way):
                attempt = self._attempt(one, now)
                if attempt is not None:
                    begun.append((one, attempt))
        for one, attempt in begun:
            stop = self._under_way[one.number] = StopSignal()
            self._workers.start(partial(self._tell, one, attempt, stop))

    def _attempt(self, one: Waiting, now: datetime) -> Attempt | None:
        """Return the attempt to deliver a notification, or None.

        It is None if the delivery is not wanted any more. It is also None if the key or the job
        cannot be read. Then the delivery is tried again later, and the step continues.
        """
        notice = one.notice
        ids = {"job_id": notice.job_id, "run_id": notice.run_id}
        try:
            secrets = self._secrets(notice.tenant)
            found = find(self._heads, self._history, notice, now)
        except Unavailable as error:
            self._log("webhook_not_begun", **ids, error=error.message)
            self._notices.again(one.number, one.tries, now + LATER)
            return None
        if found is None:
            self._log("webhook_not_wanted", **ids)
            self._notices.settle(one.number)
            return None
        return webhook(notice, found.url, notification_json(notice, found.run), secrets, now)

    def _tell(self, one: Waiting, attempt: Attempt, stop: StopSignal) -> None:
        """Deliver a notification. A thread calls this; the append of a deque is atomic."""
        self._said.append(_Said(one, self._registry.run(attempt, stop, NoLog())))
        self._woken()

    def _settle(self, said: _Said, now: datetime) -> None:
        one, outcome = said
        if outcome.status == "CANCELLED":
            return  # the delivery was interrupted
        tries = one.tries + 1
        verdict = judged(outcome, one.notice, tries)
        ids = {"job_id": one.notice.job_id, "run_id": one.notice.run_id, "tries": tries}
        if verdict.again is not None:
            self._notices.again(one.number, tries, now + verdict.again)
            return
        self._notices.settle(one.number)
        if verdict.told:
            self._log("webhook_delivered", **ids)
        else:
            self._log("webhook_given_up", **ids, error=verdict.error)
