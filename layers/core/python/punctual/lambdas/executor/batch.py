"""Processes the messages of one invocation: wait, claim, run, renew leases, write ends.

The loop's thread does all work except tasks, heartbeats and visibility calls. After a crash the
queue delivers the messages again. From the first heartbeat on, a timer also covers the run.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from punctual.domain.durations import LEASE
from punctual.domain.errors import Unavailable
from punctual.domain.run import Run
from punctual.engine.changes.change import Result
from punctual.engine.changes.write_ids import marks
from punctual.engine.execution.executor import Assignment
from punctual.engine.execution.leases import LeaseKeeper
from punctual.engine.quotas.run_permits import RunPermits
from punctual.lambdas.executor import timing as pace
from punctual.lambdas.executor.admission import Admission
from punctual.lambdas.executor.attempt import Delivery, Lane, RunningAttempt, is_old, taken
from punctual.lambdas.executor.claims_back import Returns
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.executor.outputs import store_results
from punctual.lambdas.executor.telemetry import tell_started, tell_written
from punctual.lambdas.executor.threads import BackgroundCalls, TaskRunner, meanwhile
from punctual.lambdas.executor.visibility import VisibilityTimeouts
from punctual.lambdas.executor.webhooks import WebhookDeliveries
from punctual.lambdas.runtime import Runtime
from punctual.tasks.registry import Registry

T = TypeVar("T")


class Batch:
    def __init__(
        self,
        runtime: Runtime,
        lane: Lane,
        mail: MessageBatch,
        tasks: Callable[[str], Registry],
        hands: TaskRunner,
        over: float,
        errands: WebhookDeliveries,
        permits: RunPermits | None = None,
    ) -> None:
        self._tell = runtime.tell
        self._clock = runtime.clock
        self._steady = runtime.steady
        self._new_id = runtime.new_id
        self._executor = runtime.executor
        self._claims = LeaseKeeper(runtime.executor, runtime.steady)
        self._blobs = runtime.ports.blobs
        self._lane = lane
        self._mail = mail
        self._returns = Returns(runtime, mail)
        self._admission = Admission(runtime, permits, mail)
        self._tasks = tasks
        self._hands = hands
        self._began = self._steady()
        self._over = over
        self._errands = errands
        self._waiting: dict[str, Delivery] = {}  # unclaimed deliveries by nonce of the claim
        self._unread: dict[str, Run] = {}  # claimed runs with an unreadable payload, by nonce
        self._attempts: list[RunningAttempt] = []
        self._claim_at = self._write_at = self._beat_at = self._began
        self._beside = BackgroundCalls(hands, runtime.tell)  # heartbeats and visibility calls
        self._hiding = VisibilityTimeouts(mail, self._beside, self._began)
        self._idle_at: float | None = None

    def run(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Process the deliveries and return the ids of the messages to deliver again."""
        now = self._clock()
        for nonce, delivery in zip(marks(self._new_id, len(deliveries)), deliveries, strict=True):
            if delivery.message.due_at > now + pace.EARLY:
                self._mail.again(delivery, delivery.message.due_at)
            else:
                self._waiting[nonce] = delivery
        self._hiding.begin(self._waiting.values())
        with self._admission:
            while self._is_at_work():
                self._hide()
                self._claim()
                self._beat()
                self._look()
                self._write()
                self._errands.tend()
                if self._is_at_work():
                    self._hands.wait(max(0.001, self._pause()))
            self._look()
        return self._mail.hand_back()

    def _is_at_work(self) -> bool:
        """Return whether work is left.

        A hanging background call delays the end for `LINGER` at most.
        """
        if self._waiting or self._attempts or self._errands.busy:
            return True
        if self._idle_at is None:
            self._idle_at = self._steady()
        return self._beside.busy and self._steady() < self._idle_at + pace.LINGER

    def _hide(self) -> None:
        runs = [*self._waiting.values(), *(one.delivery for one in self._attempts)]
        self._hiding.look(self._steady(), [*runs, *self._errands.held])

    # Claims

    def _claim(self) -> None:
        now, steady = self._clock(), self._steady()
        due = {nonce: one for nonce, one in self._waiting.items() if one.message.due_at <= now}
        if not due or steady < self._claim_at:
            return
        due = self._admission.admit(due, self._waiting, self._meanwhile)
        if not due:
            return
        try:
            messages = [one.message for one in due.values()]
            handed = self._meanwhile(lambda: self._executor.claim(messages, list(due)))
        except Unavailable as error:
            self._claim_again(due, error.message)
            return
        unread = {one.nonce: due[one.nonce] for one in handed.unread}
        if unread:
            self._unread.update((one.nonce, one.run) for one in handed.unread)
            self._claim_again(unread, "What they are to do cannot be read.")
        for nonce in due.keys() - unread:
            del self._waiting[nonce]
        granted = {one.run.nonce: one for one in handed.granted}
        rest = [one for nonce, one in due.items() if nonce not in granted and nonce not in unread]
        for message, at in handed.again:
            self._mail.again(taken(rest, message), at)
        self._mail.later([taken(rest, message) for message in handed.later])
        self._admission.release([n for n in due if n not in granted and n not in unread], False)
        self._begin([(due[nonce], one) for nonce, one in granted.items()])

    def _claim_again(self, due: Mapping[str, Delivery], why: str) -> None:
        """Retry the claim with the same nonces, or return the messages after `PATIENCE`.

        A returned claim does not count as an attempt, because its task did not begin.
        """
        self._claim_at = self._steady() + pace.AGAIN
        if self._claim_at <= self._began + pace.PATIENCE:
            return
        self._tell.problem("claim_failed", messages=len(due), error=why)
        self._admission.release(due, False)
        for nonce, delivery in due.items():
            self._waiting.pop(nonce, None)
            run = self._unread.get(nonce)
            if run is None:
                self._mail.later([delivery])
            else:
                self._returns.unbegun(delivery, run, waits=True)

    def _begin(self, granted: Sequence[tuple[Delivery, Assignment]]) -> None:
        now, steady = self._clock(), self._steady()
        left = self._over - pace.MARGIN - steady
        new = []
        for delivery, one in granted:
            old = is_old(one.run, now)
            if old or left < min(one.timeout_seconds, pace.LEAST):
                self._admission.release([one.run.nonce], False)
                self._returns.unbegun(delivery, one.run, waits=old)
                continue
            tasks, is_lost = self._tasks(one.key.tenant), partial(self._claims.is_lost, one)
            attempt = RunningAttempt(delivery, one, tasks, steady, left, is_lost)
            self._claims.add(one, attempt.stop)
            self._attempts.append(attempt)
            new.append(attempt)
            tell_started(self._tell, one.run)
        if new and self._lane.beats_at_once:
            self._beside.guarded(lambda: self._renew(early=True), "beat_failed")
        for attempt in new:
            self._hands.start(attempt)

    # Heartbeats

    def _beat(self) -> None:
        if self._admission.is_to_tend():
            self._beside.start(self._admission.tend, "places_not_renewed")
        self._claims.end_the_lost()
        at = self._claims.next_beat()
        if at is None or self._steady() < max(at, self._beat_at):
            return
        self._beat_at = self._over  # blocks a second renewal while one is active
        self._beside.start(self._renew_beside, "beat_failed")

    def _renew_beside(self) -> None:
        try:
            self._renew(early=False)
        finally:
            self._beat_at = self._steady() + pace.AGAIN

    def _renew(self, early: bool) -> None:
        """Renew leases and acknowledge the messages of runs that have a lease timer.

        The first heartbeat puts this timer, so the message is no longer needed.
        """
        watched = {one.run.run_id for one in self._claims.beat(early)}
        carried = [
            one.delivery for one in list(self._attempts) if one.assignment.run.run_id in watched
        ]
        if carried:
            self._mail.acknowledge(carried)

    # Ends

    def _look(self) -> None:
        self._beside.look()
        steady = self._steady()
        for attempt in self._attempts:
            attempt.look(steady)

    def _write(self) -> None:
        """Write the ends of all ended attempts in one batch, shortly after the first."""
        steady = self._steady()
        ended = [one for one in self._attempts if one.ended_at is not None]
        if not ended or steady < self._write_at:
            return
        first = min(one.ended_at for one in ended if one.ended_at is not None)
        if len(ended) < len(self._attempts) and steady < first + pace.GATHER:
            return
        try:
            self._finish([one for one in ended if not one.goes_back])
            for one in [one for one in ended if one.goes_back]:
                begun = one.outcome.begun
                back = partial(
                    self._returns.give_back, *one.assignment[:2], begun, unstarted=not begun
                )
                self._settle(one, self._meanwhile(back))
        except Unavailable as error:
            self._write_at = self._steady() + pace.AGAIN
            if self._write_at > min(self._over - pace.LAST, first + pace.HELD):
                self._tell.problem("finish_failed", runs=len(ended), error=error.message)
                for one in [one for one in self._attempts if one.ended_at is not None]:
                    self._let_go(one)
                    self._mail.later([one.delivery])

    def _finish(self, ended: Sequence[RunningAttempt]) -> None:
        self._store([one for one in ended if one.detail is None])
        ended = [one for one in ended if one.detail is not None]
        if not ended:
            return
        finished = [one.finished for one in ended]
        results = self._meanwhile(lambda: self._executor.finish(finished, True))
        for one, said, result in zip(ended, finished, results, strict=True):
            if result.contended:
                self._write_at = self._steady() + pace.AGAIN
                continue
            # The failure is logged. When the lease expires, an executor that can read the job
            # continues.
            if result.failed:
                self._let_go(one)
                self._mail.later([one.delivery])
                continue
            self._settle(one, result)
            tell_written(self._tell, said, result)

    def _store(self, ended: Sequence[RunningAttempt]) -> None:
        """Store the outputs and logs of attempts before the swaps that end them.

        A failed store is repeated each second. After `PATIENCE` the attempt fails. Other attempts
        of the batch end meanwhile.
        """
        if not ended:
            return
        results = [attempt.result for attempt in ended]
        stored = self._meanwhile(lambda: store_results(self._blobs, results))
        for attempt, detail in zip(ended, stored, strict=True):
            if not isinstance(detail, Unavailable):
                attempt.detail = detail
            elif self._steady() < (attempt.ended_at or 0) + pace.PATIENCE:
                self._write_at = self._steady() + pace.AGAIN
            else:
                attempt.fail_unstored(detail)

    def _settle(self, one: RunningAttempt, result: Result) -> None:
        """Drop an ended attempt.

        If effects are open, return its message, which evaluates the job again.
        """
        self._let_go(one)
        if not result.effects_done:
            self._mail.again(one.delivery, self._clock() + LEASE)

    def _let_go(self, one: RunningAttempt) -> None:
        self._claims.let_go(one.assignment)
        self._attempts.remove(one)
        self._admission.release([one.assignment.run.nonce], True)

    def _meanwhile(self, call: Callable[[], T]) -> T:
        """Run a store call in a thread, so heartbeats continue while the store hangs."""
        return meanwhile(self._hands, call, self._tend) if self._attempts else call()

    def _tend(self) -> float:
        if self._steady() >= self._over - pace.LAST:
            raise Unavailable("The store did not answer before the function's end.")
        self._hide()
        self._beat()
        self._look()
        return max(0.001, self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next step that needs no finished thread."""
        now, steady = self._clock(), self._steady()
        moments = [one.next_at for one in self._attempts if one.ended_at is None]
        if self._attempts:
            moments += [steady + pace.LOOK, self._write_at]
            at = self._claims.next_beat()
            if at is not None:
                moments.append(max(self._beat_at, at))
        ended = [one.ended_at for one in self._attempts]
        moments += [at + pace.GATHER for at in ended if at is not None]
        if self._waiting:
            soonest = min(one.message.due_at for one in self._waiting.values())
            moments.append(max(self._claim_at, steady + (soonest - now).total_seconds()))
        moments += self._hiding.moments
        return min((at - steady for at in moments if at > steady), default=pace.LOOK)
