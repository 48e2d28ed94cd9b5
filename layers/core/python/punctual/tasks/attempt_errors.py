"""Turn the errors of a runner into outcomes, without the attempt's secrets."""

import logging
import traceback
from collections.abc import Callable

from punctual.domain.errors import Invalid, PunctualError
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    NoRoom,
    Outcome,
    Recorder,
    Runner,
    StartFailed,
    StopRequest,
    Throttled,
)
from punctual.tasks.redaction import Redactor
from punctual.tasks.script.open_files import NOT_BEGUN_MESSAGE, NotBegun, retry_not_begun

_log = logging.getLogger(__name__)


def run_filled(runner: Runner, attempt: Attempt, stop: StopRequest, recorder: Recorder) -> Outcome:
    """Return the outcome of an attempt with filled placeholders. No secret is left in it."""

    def run() -> Outcome:
        return retry_not_begun(lambda: runner.run(attempt, stop, recorder), stop.wait)

    return guarded(attempt, Redactor(attempt.secrets), run)


def guarded(attempt: Attempt, redactor: Redactor, action: Callable[[], Outcome]) -> Outcome:
    """Return the redacted outcome of the action. Its exceptions become failed outcomes."""
    try:
        return redactor.outcome(action())
    except NotBegun:
        return Outcome("FAILED", NOT_BEGUN_MESSAGE, begun=False)
    except Throttled as error:
        return Outcome(
            "FAILED",
            redactor.text(str(error)),
            begun=False,
            lacks_resources=isinstance(error, NoRoom),
            start_failed=isinstance(error, StartFailed),
        )
    except BadTask as error:
        return Outcome.failed(redactor.text(str(error)), retryable=False)
    except PunctualError as error:
        # Retry all errors but Invalid. A retry sends the same invalid data again.
        retryable = not isinstance(error, Invalid)
        return Outcome.failed(redactor.text(error.message), retryable=retryable)
    except Exception as error:
        _log_crash(attempt, error)
        return Outcome.failed(f"The task failed inside Punctual: {type(error).__name__}")


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
