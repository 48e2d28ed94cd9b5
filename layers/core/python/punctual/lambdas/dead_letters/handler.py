"""Ends the runs of messages that were received too often, and logs each.

A schedule starts this function. An event source would poll empty queues all day, which costs more
than the rest of an idle stage. A message that fails now is tried in the next round. An unreadable
message is logged and deleted. It only names a run, and the job of the run has timers.
"""

from collections.abc import Callable, Sequence

from punctual.aws.sqs.dead_letters import DeadLetters, Letter
from punctual.aws.sqs.notifications import parse_notice
from punctual.aws.sqs.run_queue import parse_message
from punctual.domain.decide import Verdict
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.changes.change import Result
from punctual.engine.ports.run_queue import Message
from punctual.lambdas.executor.telemetry import tell_given_up
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric

MAX_LOGGED_CHARACTERS = 1_024  # of a body that cannot be parsed
SPARE = 60.0  # seconds for one batch of ten while the store is slow


class DeadLetterHandler:
    def __init__(self, runtime: Runtime, urls: Sequence[str]) -> None:
        self._runtime = runtime
        self._tell = runtime.tell
        self._letters = DeadLetters(lambda: runtime.clients.sqs, urls)

    def bury(self, left: Callable[[], float]) -> None:
        """Empty one queue after another. `left` returns the remaining seconds of the invocation."""
        with self._tell.told():
            failure: Unavailable | None = None
            for url in self._letters.urls:
                try:
                    self._empty(url, left)
                except Unavailable as error:
                    failure = error
            if failure is not None:
                raise failure

    def _empty(self, url: str, left: Callable[[], float]) -> None:
        """Handle batches of ten until the queue is empty or a whole batch fails."""
        while left() > SPARE:
            letters = self._letters.receive(url)
            done = self._settled(letters)
            if not done:
                return
            self._letters.delete(url, done)

    def _settled(self, letters: Sequence[Letter]) -> list[Letter]:
        read = [(letter, self._read(letter)) for letter in letters]
        dead = [(letter, message) for letter, message in read if message is not None]
        kept = self._kept(dead)
        return [letter for letter in letters if letter.id not in kept]

    def _read(self, letter: Letter) -> Message | None:
        self._tell.measure(Metric.DEAD_LETTERS)
        try:
            notice = parse_notice(letter.body)
            if notice is not None:
                # A notification ends no run. Deliveries to its target have failed for hours.
                tell_given_up(self._tell, notice, "Its message came back too often.")
                return None
            return parse_message(letter.body)
        except Invalid as error:
            self._tell.problem(
                "dead_letter_unreadable",
                message_id=letter.id,
                error=error.message,
                body=letter.body[:MAX_LOGGED_CHARACTERS],
            )
            return None

    def _kept(self, dead: Sequence[tuple[Letter, Message]]) -> set[str]:
        """Return the ids of messages that could not be handled now."""
        if not dead:
            return set()
        try:
            results = self._runtime.executor.poison([message for _, message in dead])
        except Unavailable as error:
            self._tell.problem("dead_letters_kept", messages=len(dead), error=error.message)
            return {letter.id for letter, _ in dead}
        return {
            letter.id
            for (letter, message), result in zip(dead, results, strict=True)
            if not self._is_settled(message, result)
        }

    def _is_settled(self, message: Message, result: Result) -> bool:
        if result.later:
            return self._is_sent_back(message)
        if not result.failed and (result.contended or not result.effects_done):
            return False
        ids = {"tenant": message.tenant, "job_id": message.job_id, "run_id": message.run_id}
        run = result.decision.run if result.decision else None
        if result.failed:
            # Another try would fail too. The job is parked, and the reconciler checks it daily.
            self._tell.problem("dead_letter_undecided", **ids)
        elif result.verdict is Verdict.OK and run is not None:
            self._tell.measure(Metric.FAILED)
            self._tell.problem("run_poisoned", **ids, attempt=run.attempt, status=run.status.value)
        else:
            # The message is stale, because the run has ended, runs now, or was sent again.
            self._tell("dead_letter_stale", **ids, verdict=result.verdict.value)
        return True

    def _is_sent_back(self, message: Message) -> bool:
        """Send the run to its lane again, because its job state waits for a later version."""
        ids = {"tenant": message.tenant, "job_id": message.job_id, "run_id": message.run_id}
        self._tell.problem("dead_letter_of_later_version", **ids)
        (taken,) = self._runtime.ports.messages.send([message])
        return taken
