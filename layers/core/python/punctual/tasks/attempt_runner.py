"""Run an attempt: fill its placeholders, then call the runner of its task type."""

import logging
from collections.abc import Callable

from punctual.domain.errors import Unavailable, Unreadable
from punctual.tasks.attempt_errors import guarded, run_filled
from punctual.tasks.contract import Attempt, Outcome, Recorder, Runners, StopRequest, Throttled
from punctual.tasks.placeholders import FindSecret, expand, no_secrets
from punctual.tasks.redaction import Redactor

_log = logging.getLogger(__name__)


class AttemptRunner:
    """Calls the runner of the attempt's task type.

    `secrets` returns the value of a secret by its name. `secret_references` returns what does so
    for an attempt with a runner that takes references in place of values, or None.
    """

    def __init__(
        self,
        runners: Runners,
        secrets: FindSecret = no_secrets,
        secret_references: Callable[[Attempt], FindSecret | None] = lambda _attempt: None,
    ) -> None:
        self._runners = dict(runners)
        self._secrets = secrets
        self._secret_references = secret_references

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted(self._runners))

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        """Return the outcome of the attempt. Exceptions of a runner become failed outcomes."""
        secrets = self._secret_references(attempt) or self._secrets
        return self._perform(attempt, stop, recorder, lambda: _filled(attempt, secrets))

    def run_as_written(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        """Return the outcome of an attempt that Punctual wrote itself, such as a webhook.

        Its strings may quote users and servers. A placeholder in them must not get a value.
        """
        return self._perform(attempt, stop, recorder, lambda: attempt)

    def _perform(
        self,
        attempt: Attempt,
        stop: StopRequest,
        recorder: Recorder,
        fill: Callable[[], Attempt],
    ) -> Outcome:
        reason = stop.reason()
        if reason:
            return Outcome.stopped(reason)
        return guarded(
            attempt, Redactor(frozenset()), lambda: self._call_runner(fill(), stop, recorder)
        )

    def _call_runner(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        kind = attempt.task["type"]
        runner = self._runners.get(kind)
        if runner is None:
            return Outcome.failed(f"This installation runs no {kind!r} tasks", retryable=False)
        return run_filled(runner, attempt, stop, recorder)


def _filled(attempt: Attempt, secrets: FindSecret) -> Attempt:
    """Return the attempt with filled placeholders.

    Nothing of the job has begun while its secrets are read, so an outage of their store is no
    attempt. A secret that cannot be decrypted fails the attempt, because waiting does not help.
    """
    try:
        return expand(attempt, secrets)
    except Unreadable:
        raise
    except Unavailable as error:
        ids = {"job_id": attempt.job_id, "run_id": attempt.run_id}
        _log.error("secrets_unavailable", extra={**ids, "error": error.message})
        raise Throttled(error.message) from error
