"""Dead letters: a message that came back too often ends its run, and somebody is told.

What cannot be read is told with its whole text and acknowledged: a message only points at a run,
whose timers stand, and nobody would ever be able to read it later.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from punctual.aws.queue import parse_message
from punctual.domain.decide import Verdict
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.change import Result
from punctual.engine.ports import Message
from punctual.serverless.runtime import Runtime
from punctual.serverless.telling import Metric

TOLD = 1_024  # characters of a body that nobody can read


class _Dead(NamedTuple):
    id: str
    message: Message


class Burying:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tell = runtime.tell

    def handle(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The partial answer: what could not be written now comes again."""
        with self._tell.told():
            dead = [one for one in map(self._read, event["Records"]) if one is not None]
            failed = self._bury(dead)
        return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}

    def _read(self, record: Mapping[str, Any]) -> _Dead | None:
        self._tell.measure(Metric.DEAD_LETTERS)
        try:
            return _Dead(record["messageId"], parse_message(record["body"]))
        except Invalid as error:
            self._tell.problem(
                "dead_letter_unreadable",
                message_id=record["messageId"],
                error=error.message,
                body=record["body"][:TOLD],
            )
            return None

    def _bury(self, dead: Sequence[_Dead]) -> list[str]:
        try:
            results = self._runtime.executor.poison([one.message for one in dead])
        except Unavailable as error:
            self._tell.problem("dead_letters_kept", messages=len(dead), error=error.message)
            return [one.id for one in dead]
        return [
            one.id
            for one, result in zip(dead, results, strict=True)
            if not self._is_settled(one.message, result)
        ]

    def _is_settled(self, message: Message, result: Result) -> bool:
        if not result.failed and (result.contended or not result.effects_done):
            return False
        ids = {"tenant": message.tenant, "job_id": message.job_id, "run_id": message.run_id}
        run = result.decision.run if result.decision else None
        if result.failed:
            # It would fail again: the job is set aside, and the reconciler keeps an eye on it.
            self._tell.problem("dead_letter_undecided", **ids)
        elif result.verdict is Verdict.OK and run is not None:
            self._tell.measure(Metric.FAILED)
            self._tell.problem("run_poisoned", **ids, attempt=run.attempt, status=run.status.value)
        else:
            # An old message: the run has ended, is being worked on, or was sent again since.
            self._tell("dead_letter_stale", **ids, verdict=result.verdict.value)
        return True
