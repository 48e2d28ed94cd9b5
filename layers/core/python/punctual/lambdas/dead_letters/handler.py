"""Ends the runs of messages that were received too often, and logs each.

A schedule starts this function. An event source would poll empty queues all day, which costs more
than the rest of an idle stage. A message that fails now is tried in the next round. An unreadable
message is logged and deleted. It only names a run, and the job of the run has timers.
"""

from collections.abc import Callable, Sequence

from punctual.aws.sqs.dead_letters import DeadLetterMessage, DeadLetterQueues
from punctual.aws.sqs.notifications import parse_notification
from punctual.aws.sqs.run_queue import parse_message
from punctual.domain.decide import Verdict
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.changes.change import Result
from punctual.engine.ports.run_queue import Message
from punctual.lambdas.executor.telemetry import log_abandoned_webhook
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric

MAX_LOGGED_BODY_CHARACTERS = 1_024  # of a body that cannot be parsed
DEAD_LETTER_RESERVE_SECONDS = 60.0  # seconds for one batch of ten while the store is slow


class DeadLetterHandler:
    def __init__(self, runtime: Runtime, urls: Sequence[str]) -> None:
        self._runtime = runtime
        self._log = runtime.log
        self._queues = DeadLetterQueues(lambda: runtime.clients.sqs, urls)

    def handle(self, remaining_seconds: Callable[[], float]) -> None:
        """Empty one queue after another.

        `remaining_seconds` returns the remaining seconds of the invocation.
        """
        with self._log.invocation():
            failure: Unavailable | None = None
            for url in self._queues.urls:
                try:
                    self._empty_queue(url, remaining_seconds)
                except Unavailable as error:
                    failure = error
            if failure is not None:
                raise failure

    def _empty_queue(self, url: str, remaining_seconds: Callable[[], float]) -> None:
        """Handle batches of ten until the queue is empty or a whole batch fails."""
        while remaining_seconds() > DEAD_LETTER_RESERVE_SECONDS:
            letters = self._queues.receive(url)
            done = self._handle_letters(letters)
            if not done:
                return
            self._queues.delete(url, done)

    def _handle_letters(self, letters: Sequence[DeadLetterMessage]) -> list[DeadLetterMessage]:
        parsed = [(letter, self._parse(letter)) for letter in letters]
        run_letters = [(letter, message) for letter, message in parsed if message is not None]
        unhandled = self._end_runs(run_letters)
        return [letter for letter in letters if letter.id not in unhandled]

    def _parse(self, letter: DeadLetterMessage) -> Message | None:
        self._log.metric(Metric.DEAD_LETTERS)
        try:
            notification = parse_notification(letter.body)
            if notification is not None:
                # A notification ends no run. Deliveries to its target have failed for hours.
                log_abandoned_webhook(
                    self._log, notification, "The message was received too often."
                )
                return None
            return parse_message(letter.body)
        except Invalid as error:
            self._log.error(
                "dead_letter_unreadable",
                message_id=letter.id,
                error=error.message,
                body=letter.body[:MAX_LOGGED_BODY_CHARACTERS],
            )
            return None

    def _end_runs(self, run_letters: Sequence[tuple[DeadLetterMessage, Message]]) -> set[str]:
        """Return the ids of messages that could not be handled now."""
        if not run_letters:
            return set()
        try:
            results = self._runtime.executor.dead_letter([message for _, message in run_letters])
        except Unavailable as error:
            self._log.error("dead_letters_kept", messages=len(run_letters), error=error.message)
            return {letter.id for letter, _ in run_letters}
        return {
            letter.id
            for (letter, message), result in zip(run_letters, results, strict=True)
            if not self._is_settled(message, result)
        }

    def _is_settled(self, message: Message, result: Result) -> bool:
        if result.is_newer_format:
            return self._send_again(message)
        if not result.has_failed and (result.is_contended or not result.effects_done):
            return False
        ids = {"tenant": message.tenant, "job_id": message.job_id, "run_id": message.run_id}
        run = result.decision.run if result.decision else None
        if result.has_failed:
            # Another try would fail too. The job is parked, and the reconciler checks it daily.
            self._log.error("dead_letter_undecided", **ids)
        elif result.verdict is Verdict.OK and run is not None:
            self._log.metric(Metric.FAILED)
            self._log.error("run_poisoned", **ids, attempt=run.attempt, status=run.status.value)
        else:
            # The message is stale, because the run has ended, runs now, or was sent again.
            self._log("dead_letter_stale", **ids, verdict=result.verdict.value)
        return True

    def _send_again(self, message: Message) -> bool:
        """Send the run to its lane again, because its job state waits for a later version."""
        ids = {"tenant": message.tenant, "job_id": message.job_id, "run_id": message.run_id}
        self._log.error("dead_letter_of_later_version", **ids)
        (accepted,) = self._runtime.ports.run_queue.send([message])
        return accepted
