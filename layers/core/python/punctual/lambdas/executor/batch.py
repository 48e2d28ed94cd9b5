"""Processes the messages of one invocation: wait, claim, run, renew leases, write ends.

The loop's thread does all work except tasks, heartbeats and visibility calls. After a crash the
queue delivers the messages again. From the first heartbeat on, a timer also covers the run.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import new_write_ids
from punctual.domain.leases import DETACHED_LEASE, RUN_LEASE
from punctual.domain.run import Reason, Run
from punctual.engine.changes.change import Result
from punctual.engine.execution.executor import Assignment, Executor
from punctual.engine.execution.lease_keeper import LeaseKeeper
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import Clock, NewId
from punctual.lambdas.executor import timing
from punctual.lambdas.executor.admission import Admission
from punctual.lambdas.executor.attempt import (
    Delivery,
    LaneSettings,
    RunningAttempt,
    handover_seconds,
    is_claim_old,
    take_delivery,
)
from punctual.lambdas.executor.claim_returns import ClaimReturns
from punctual.lambdas.executor.messages import MessageBatch, VisibilityTimeouts
from punctual.lambdas.executor.outputs import ReadUpload, store_results
from punctual.lambdas.executor.telemetry import log_started, log_written
from punctual.lambdas.executor.threads import BackgroundCalls, TaskRunner, call_in_background
from punctual.lambdas.executor.webhooks import WebhookDeliveries
from punctual.lambdas.telemetry import Telemetry
from punctual.tasks.attempt_runner import AttemptRunner

T = TypeVar("T")


class Batch:
    def __init__(
        self,
        *,
        executor: Executor,
        blobs: Blobs,
        read_upload: ReadUpload,
        lane: LaneSettings,
        messages: MessageBatch,
        admission: Admission,
        webhooks: WebhookDeliveries,
        attempt_runner_for: Callable[[str], AttemptRunner],
        task_runner: TaskRunner,
        ends_steady: float,
        clock: Clock,
        steady: Callable[[], float],
        new_id: NewId,
        log: Telemetry,
    ) -> None:
        """Set up a batch.

        `attempt_runner_for` returns the runner of a tenant. The invocation ends at `ends_steady`.
        """
        self._executor = executor
        self._blobs = blobs
        self._read_upload = read_upload
        self._lane = lane
        self._messages = messages
        self._admission = admission
        self._webhooks = webhooks
        self._attempt_runner_for = attempt_runner_for
        self._task_runner = task_runner
        self._ends_steady = ends_steady
        self._clock = clock
        self._steady = steady
        self._new_id = new_id
        self._log = log
        self._leases = LeaseKeeper(executor, steady)
        self._claim_returns = ClaimReturns(
            executor=executor, messages=messages, clock=clock, log=log
        )
        self._began_steady = steady()
        self._waiting: dict[str, Delivery] = {}  # unclaimed deliveries by nonce of the claim
        # Claimed runs with an unreadable payload, by nonce.
        self._unreadable_runs: dict[str, Run] = {}
        self._attempts: list[RunningAttempt] = []
        self._next_claim_steady = self._next_write_steady = self._next_renewal_steady = (
            self._began_steady
        )
        # Heartbeats and visibility calls.
        self._background_calls = BackgroundCalls(task_runner, log)
        self._visibility = VisibilityTimeouts(messages, self._background_calls, self._began_steady)
        self._idle_steady: float | None = None

    def run(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Process the deliveries and return the ids of the messages to deliver again."""
        now = self._clock()
        for nonce, delivery in zip(
            new_write_ids(self._new_id, len(deliveries)), deliveries, strict=True
        ):
            if delivery.message.due_at > now + timing.MAX_EARLY_RECEIVE:
                self._messages.retry_at(delivery, delivery.message.due_at)
            else:
                self._waiting[nonce] = delivery
        self._visibility.extend_redelivered(self._waiting.values())
        with self._admission:
            while self._has_work():
                self._extend_visibility()
                self._claim()
                self._renew_due_leases()
                self._check_attempts()
                self._write_ends()
                self._webhooks.advance()
                if self._has_work():
                    self._task_runner.wait(max(0.001, self._seconds_to_next_step()))
            self._check_attempts()
        return self._messages.batch_failures()

    def _has_work(self) -> bool:
        """Return whether work is left.

        A hanging background call delays the end for `MAX_LINGER_SECONDS` at most.
        """
        if self._waiting or self._attempts or self._webhooks.is_busy:
            return True
        if self._idle_steady is None:
            self._idle_steady = self._steady()
        return (
            self._background_calls.is_busy
            and self._steady() < self._idle_steady + timing.MAX_LINGER_SECONDS
        )

    def _extend_visibility(self) -> None:
        deliveries = [*self._waiting.values(), *(attempt.delivery for attempt in self._attempts)]
        self._visibility.extend(self._steady(), [*deliveries, *self._webhooks.unfinished])

    # Claims

    def _claim(self) -> None:
        now, steady = self._clock(), self._steady()
        due = {
            nonce: delivery
            for nonce, delivery in self._waiting.items()
            if delivery.message.due_at <= now
        }
        if not due or steady < self._next_claim_steady:
            return
        due = self._admission.admit(due, self._waiting, self._call_in_background)
        if not due:
            return
        try:
            messages = [delivery.message for delivery in due.values()]
            claim_result = self._call_in_background(
                lambda: self._executor.claim(messages, list(due))
            )
        except Unavailable as error:
            self._retry_claim(due, error.message)
            return
        unreadable = {
            unreadable_run.nonce: due[unreadable_run.nonce]
            for unreadable_run in claim_result.payload_unavailable
        }
        if unreadable:
            self._unreadable_runs.update(
                (unreadable_run.nonce, unreadable_run.run)
                for unreadable_run in claim_result.payload_unavailable
            )
            self._retry_claim(unreadable, "The payload of the runs cannot be read.")
        for nonce in due.keys() - unreadable:
            del self._waiting[nonce]
        assignments = {assignment.run.nonce: assignment for assignment in claim_result.claimed}
        unclaimed = [
            delivery
            for nonce, delivery in due.items()
            if nonce not in assignments and nonce not in unreadable
        ]
        for message, retry_at in claim_result.retry_later:
            self._messages.retry_at(take_delivery(unclaimed, message), retry_at)
        self._messages.back_off(
            [take_delivery(unclaimed, message) for message in claim_result.newer_format]
        )
        self._admission.release(
            [nonce for nonce in due if nonce not in assignments and nonce not in unreadable], False
        )
        self._start_attempts(
            [(due[nonce], assignment) for nonce, assignment in assignments.items()]
        )

    def _retry_claim(self, due: Mapping[str, Delivery], reason: str) -> None:
        """Retry the claim with the same nonces.

        After `MAX_STORE_RETRY_SECONDS` return the messages instead. A returned claim does not count
        as an attempt, because its task did not begin.
        """
        self._next_claim_steady = self._steady() + timing.STORE_RETRY_SECONDS
        if self._next_claim_steady <= self._began_steady + timing.MAX_STORE_RETRY_SECONDS:
            return
        self._log.error("claim_failed", messages=len(due), error=reason)
        self._admission.release(due, False)
        for nonce, delivery in due.items():
            self._waiting.pop(nonce, None)
            run = self._unreadable_runs.get(nonce)
            if run is None:
                self._messages.back_off([delivery])
            else:
                self._claim_returns.return_unbegun(delivery, run, is_delayed=True)

    def _start_attempts(self, claimed: Sequence[tuple[Delivery, Assignment]]) -> None:
        now, steady = self._clock(), self._steady()
        seconds_left = self._ends_steady - timing.END_RESERVE_SECONDS - steady
        attempts, detached = [], []
        for delivery, assignment in claimed:
            is_old = is_claim_old(assignment.run, now)
            if is_old or seconds_left < min(assignment.timeout_seconds, timing.MIN_RUN_SECONDS):
                self._admission.release([assignment.run.nonce], False)
                self._claim_returns.return_unbegun(delivery, assignment.run, is_delayed=is_old)
                continue
            own_seconds = handover_seconds(assignment, seconds_left, self._lane.function_memory_mb)
            if not self._has_room(assignment, own_seconds is not None):
                self._admission.release([assignment.run.nonce], False)
                self._claim_returns.return_unbegun(
                    delivery, assignment.run, is_delayed=True, lacks_resources=True
                )
                continue
            attempt_runner = self._attempt_runner_for(assignment.key.tenant)
            is_lost = partial(self._leases.is_lost, assignment)
            attempt = RunningAttempt(
                delivery, assignment, attempt_runner, steady, seconds_left, is_lost, own_seconds
            )
            if own_seconds is not None:
                detached.append(attempt)
                continue
            self._leases.add(assignment, attempt.stop)
            self._attempts.append(attempt)
            attempts.append(attempt)
        if attempts and self._lane.renews_at_once:
            self._background_calls.run_logged(lambda: self._renew(early=True), "beat_failed")
        self._start_tasks(attempts)  # first, because their timeouts count from their claims
        self._start_tasks(self._prepare_handover(detached))

    def _has_room(self, assignment: Assignment, is_detached: bool) -> bool:
        """Take the places of a claimed run. A handed over one holds them until its end."""
        if not self._admission.needs_place(assignment, is_detached):
            return True
        take = self._admission.hand_over if is_detached else self._admission.take_script_place
        try:
            return self._call_in_background(lambda: take(assignment))
        except Unavailable:  # the invocation ends
            return False

    def _start_tasks(self, attempts: Sequence[RunningAttempt]) -> None:
        for attempt in attempts:
            log_started(self._log, attempt.assignment.run)
            self._task_runner.start(attempt)

    def _prepare_handover(self, detached: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """Extend the leases of runs for detached runners, and return the runs that are still held.

        The timers of the leases come first, so the messages are not needed any more. No heartbeat
        of this executor shortens the leases.
        """
        if not detached:
            return []
        claims = [attempt.claim for attempt in detached]
        try:
            renewals = self._call_in_background(
                lambda: self._executor.renew(claims, is_first=True, lease=DETACHED_LEASE)
            )
        except Unavailable as error:
            self._log.error("handover_failed", runs=len(detached), error=error.message)
            for attempt in detached:
                run = attempt.assignment.run
                self._admission.release([run.nonce], False)
                self._claim_returns.return_unbegun(attempt.delivery, run, is_delayed=True)
            return []
        retry_at = self._clock() + RUN_LEASE
        held: list[RunningAttempt] = []
        for attempt, renewal in zip(detached, renewals, strict=True):
            if not renewal.is_held:
                self._admission.release([attempt.assignment.run.nonce], False)
                self._messages.retry_at(attempt.delivery, retry_at)
                continue
            if renewal.cancel_reason is not Reason.NONE:
                attempt.stop.request_stop("CANCEL")  # before the function is invoked
            held.append(attempt)
        deliveries = [attempt.delivery for attempt in held]
        self._background_calls.run_logged(
            lambda: self._messages.acknowledge(deliveries), "acknowledge_failed"
        )
        self._attempts.extend(held)
        return held

    # Heartbeats

    def _renew_due_leases(self) -> None:
        if self._admission.needs_renewal():
            self._background_calls.start(self._admission.renew, "places_not_renewed")
        self._leases.stop_lost()
        renewal_steady = self._leases.next_renewal_steady()
        if renewal_steady is None or self._steady() < max(
            renewal_steady, self._next_renewal_steady
        ):
            return
        self._next_renewal_steady = self._ends_steady  # blocks a second renewal while one is active
        self._background_calls.start(self._renew_in_background, "beat_failed")

    def _renew_in_background(self) -> None:
        try:
            self._renew(early=False)
        finally:
            self._next_renewal_steady = self._steady() + timing.STORE_RETRY_SECONDS

    def _renew(self, early: bool) -> None:
        """Renew leases and acknowledge the messages of runs that have a lease timer.

        The first heartbeat puts this timer, so the message is no longer needed.
        """
        covered_ids = {assignment.run.run_id for assignment in self._leases.renew(early)}
        covered = [
            attempt.delivery
            for attempt in list(self._attempts)
            if attempt.assignment.run.run_id in covered_ids
        ]
        if covered:
            self._messages.acknowledge(covered)

    # Ends

    def _check_attempts(self) -> None:
        self._background_calls.raise_crash()
        steady = self._steady()
        for attempt in self._attempts:
            attempt.check(steady)

    def _write_ends(self) -> None:
        """Write the ends of all ended attempts in one batch, shortly after the first."""
        steady = self._steady()
        ended_attempts = [attempt for attempt in self._attempts if attempt.ended_steady is not None]
        if not ended_attempts or steady < self._next_write_steady:
            return
        first_steady = min(
            attempt.ended_steady for attempt in ended_attempts if attempt.ended_steady is not None
        )
        if (
            len(ended_attempts) < len(self._attempts)
            and steady < first_steady + timing.END_BATCH_WAIT_SECONDS
        ):
            return
        for attempt in [attempt for attempt in ended_attempts if attempt.is_handed_over]:
            self._leave_to_runner(attempt)
            ended_attempts.remove(attempt)
        try:
            self._finish([attempt for attempt in ended_attempts if not attempt.returns_claim])
            for attempt in [attempt for attempt in ended_attempts if attempt.returns_claim]:
                key, run, has_begun = (
                    attempt.assignment.key,
                    attempt.assignment.run,
                    attempt.outcome.begun,
                )
                return_claim = partial(
                    self._claim_returns.return_claim, key, run, has_begun, unstarted=not has_begun
                )
                if attempt.outcome.lacks_resources:
                    return_claim = partial(self._claim_returns.await_resources, key, run)
                elif attempt.outcome.start_failed:
                    return_claim = partial(
                        self._claim_returns.return_failed_start, key, run, attempt.outcome.error
                    )
                self._settle(attempt, self._call_in_background(return_claim))
        except Unavailable as error:
            self._next_write_steady = self._steady() + timing.STORE_RETRY_SECONDS
            if self._next_write_steady > min(
                self._ends_steady - timing.NO_RETRY_SECONDS,
                first_steady + timing.MAX_END_RETRY_SECONDS,
            ):
                self._log.error("finish_failed", runs=len(ended_attempts), error=error.message)
                for attempt in [
                    attempt for attempt in self._attempts if attempt.ended_steady is not None
                ]:
                    self._drop(attempt)
                    self._messages.back_off([attempt.delivery])

    def _leave_to_runner(self, attempt: RunningAttempt) -> None:
        """Forget a run that its runner finishes by the claim, or that its lease ends.

        A message that no lease timer covers yet returns, and then finds an expired lease.
        """
        self._drop(attempt)
        self._messages.retry_at(attempt.delivery, self._clock() + RUN_LEASE)

    def _finish(self, ended_attempts: Sequence[RunningAttempt]) -> None:
        self._store_ended([attempt for attempt in ended_attempts if attempt.detail is None])
        ended_attempts = [attempt for attempt in ended_attempts if attempt.detail is not None]
        if not ended_attempts:
            return
        finished = [attempt.finished for attempt in ended_attempts]
        results = self._call_in_background(lambda: self._executor.finish(finished, True))
        for attempt, finished_attempt, result in zip(
            ended_attempts, finished, results, strict=True
        ):
            if result.is_contended:
                self._next_write_steady = self._steady() + timing.STORE_RETRY_SECONDS
                continue
            # The failure is logged. When the lease expires, an executor that can read the job
            # continues.
            if result.has_failed:
                self._drop(attempt)
                self._messages.back_off([attempt.delivery])
                continue
            self._settle(attempt, result)
            log_written(self._log, finished_attempt, result)
            self._delete_obsolete(attempt.obsolete_names)

    def _delete_obsolete(self, names: Sequence[str]) -> None:
        """Delete parts of logs that are stored whole now. Those that stay expire."""
        if names:
            delete = partial(self._blobs.delete, names)
            self._background_calls.start(delete, "log_parts_kept")

    def _store_ended(self, ended_attempts: Sequence[RunningAttempt]) -> None:
        """Store the outputs and logs of attempts before the swaps that end them.

        A failed store is repeated each second. After `MAX_STORE_RETRY_SECONDS` the attempt fails.
        Other attempts of the batch end meanwhile.
        """
        if not ended_attempts:
            return
        results = [attempt.result for attempt in ended_attempts]
        stored = self._call_in_background(
            lambda: store_results(self._blobs, results, self._read_upload)
        )
        for attempt, stored_result in zip(ended_attempts, stored, strict=True):
            if not isinstance(stored_result, Unavailable):
                attempt.accept_result(stored_result)
            elif self._steady() < (attempt.ended_steady or 0) + timing.MAX_STORE_RETRY_SECONDS:
                self._next_write_steady = self._steady() + timing.STORE_RETRY_SECONDS
            else:
                attempt.fail_store(stored_result)

    def _settle(self, attempt: RunningAttempt, result: Result) -> None:
        """Drop an ended attempt.

        If effects are open, return its message, which evaluates the job again.
        """
        self._drop(attempt)
        if not result.effects_done:
            self._messages.retry_at(attempt.delivery, self._clock() + RUN_LEASE)

    def _drop(self, attempt: RunningAttempt) -> None:
        self._leases.remove(attempt.assignment)
        self._attempts.remove(attempt)
        self._admission.release([attempt.assignment.run.nonce], True)

    def _call_in_background(self, call: Callable[[], T]) -> T:
        """Run a store call in a thread, so heartbeats continue while the store hangs."""
        return (
            call_in_background(self._task_runner, call, self._keep_alive)
            if self._attempts
            else call()
        )

    def _keep_alive(self) -> float:
        if self._steady() >= self._ends_steady - timing.NO_RETRY_SECONDS:
            raise Unavailable("The store did not answer before the function's end.")
        self._extend_visibility()
        self._renew_due_leases()
        self._check_attempts()
        return max(0.001, self._seconds_to_next_step())

    def _seconds_to_next_step(self) -> float:
        """Return the seconds until the next step that needs no finished thread."""
        now, steady = self._clock(), self._steady()
        step_times = [
            attempt.next_check_steady for attempt in self._attempts if attempt.ended_steady is None
        ]
        if self._attempts:
            step_times += [steady + timing.ATTEMPT_CHECK_SECONDS, self._next_write_steady]
            renewal_steady = self._leases.next_renewal_steady()
            if renewal_steady is not None:
                step_times.append(max(self._next_renewal_steady, renewal_steady))
        ended_times = [attempt.ended_steady for attempt in self._attempts]
        step_times += [
            ended_steady + timing.END_BATCH_WAIT_SECONDS
            for ended_steady in ended_times
            if ended_steady is not None
        ]
        if self._waiting:
            soonest_at = min(delivery.message.due_at for delivery in self._waiting.values())
            step_times.append(
                max(self._next_claim_steady, steady + (soonest_at - now).total_seconds())
            )
        step_times += self._visibility.next_steady_times
        return min(
            (step_steady - steady for step_steady in step_times if step_steady > steady),
            default=timing.ATTEMPT_CHECK_SECONDS,
        )
