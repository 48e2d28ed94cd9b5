"""Run an attempt: fill placeholders, call the runner, redact, and turn errors into outcomes."""

import logging
import traceback

from punctual.domain.errors import Invalid, PunctualError
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, Runners, StopRequest
from punctual.tasks.placeholders import FindSecret, expand, no_secrets
from punctual.tasks.redaction import Redactor
from punctual.tasks.script.open_files import NOT_BEGUN_MESSAGE, NotBegun, retry_not_begun

_log = logging.getLogger(__name__)


class AttemptRunner:
    """Calls the runner of the attempt's task type."""

    def __init__(self, runners: Runners, secrets: FindSecret = no_secrets) -> None:
        self._runners = dict(runners)
        self._secrets = secrets

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted(self._runners))

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        """Return the outcome of the attempt. Exceptions of a runner become failed outcomes."""
        reason = stop.reason()
        if reason:
            return Outcome.stopped(reason)
        redactor = Redactor(frozenset())
        try:
            attempt = expand(attempt, self._secrets)
            redactor = Redactor(attempt.secrets)
            expanded = attempt
            outcome = retry_not_begun(lambda: self._run(expanded, stop, recorder), stop.wait)
            return redactor.outcome(outcome)
        except NotBegun:
            return Outcome("FAILED", NOT_BEGUN_MESSAGE, begun=False)
        except BadTask as error:
            return Outcome.failed(redactor.text(str(error)), retryable=False)
        except PunctualError as error:
            # Retry all errors but Invalid. A retry sends the same invalid data again.
            retryable = not isinstance(error, Invalid)
            return Outcome.failed(redactor.text(error.message), retryable=retryable)
        except Exception as error:
            _log_crash(attempt, error)
            return Outcome.failed(f"The task failed inside Punctual: {type(error).__name__}")

    def _run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
        kind = attempt.task["type"]
        runner = self._runners.get(kind)
        if runner is None:
            return Outcome.failed(f"This installation runs no {kind!r} tasks", retryable=False)
        return runner.run(attempt, stop, recorder)


def _log_crash(attempt: Attempt, error: Exception) -> None:
    # Omit the exception's text. It may contain a secret or a payload.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _log.error(
        "task_crashed",
        extra={
            "job_id": attempt.job_id,
            "run_id": attempt.run_id,
            "attempt": attempt.attempt_number,
            "error": type(error).__name__,
            "where": f"{frame.filename}:{frame.lineno} {frame.name}",
        },
    )
