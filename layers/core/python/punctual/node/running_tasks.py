"""The runs that this node holds.

The work of each runs in a thread, and its output and log go to files.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from punctual.domain.errors import PunctualError
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.run_results import log_key, output_key
from punctual.engine.execution.executor import Assignment, Executor, FinishedAttempt
from punctual.engine.execution.lease_keeper import LeaseKeeper
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import Detail
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.script.open_files import (
    NotBegun,
    not_begun_at_file_limit,
    retry_not_begun,
    retry_until_free,
)

NOT_BEGUN = "NOT_BEGUN"  # the claim is returned: no file could be opened to begin the run


class Files(Protocol):
    """Stores the node's blobs. Safe to call from several threads."""

    def put(self, name: str, data: bytes, content_type: str) -> None: ...

    def open_log(self, name: str) -> "LogFile": ...


class LogFile(Protocol):
    """A log that stays open while its attempt runs."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> int: ...

    def discard(self) -> None: ...


class EndedAttempt(NamedTuple):
    """The end of an attempt, and the reason for its stop, or an empty text."""

    assignment: Assignment
    finished: FinishedAttempt
    stop_reason: str

    @property
    def ended_by_itself(self) -> bool:
        """Return whether the work ended by itself. A later stop changes nothing."""
        return self.finished.status is not RunStatus.CANCELLED


class _Log:
    """The log of an attempt. Readers see what a task prints while it runs."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._file: LogFile | None = None

    def open(self) -> None:
        """Open the log of a task that may print, before the task begins."""
        with not_begun_at_file_limit():
            self._file = self._files.open_log(self._name)

    def log(self, data: bytes) -> None:
        if self._file is None:
            self._file = retry_until_free(lambda: self._files.open_log(self._name))
        self._file.write(data)

    def end(self) -> tuple[str, int]:
        """Sync the log. Return its name and size for the row, or no name for an empty log."""
        file, self._file = self._file, None
        size = 0 if file is None else file.end()
        return (self._name if size else ""), size

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(PunctualError):  # A remaining file has no row, so no reader finds it.
                file.discard()


class RunningTasks(LeaseKeeper):
    """Keeps the leases of running attempts.

    Only the node's loop calls it; the work itself runs in threads.
    """

    def __init__(
        self,
        executor: Executor,
        attempt_runner: AttemptRunner,
        files: Files,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(executor, monotonic)
        self._attempt_runner = attempt_runner
        self._files = files

    def is_lost(self, _assignment: Assignment) -> bool:
        """Return False: the lock on the folder keeps every other process from taking the run."""
        return False

    def prepare_work(
        self, assignment: Assignment, on_ended: Callable[[EndedAttempt], None]
    ) -> Callable[[], None]:
        """Return the work of a claimed run for a thread. The work calls `on_ended` once."""
        stop = StopSignal()
        self.add(assignment, stop)

        def work() -> None:
            on_ended(self._perform(assignment, stop))

        return work

    def _perform(self, assignment: Assignment, stop: StopSignal) -> EndedAttempt:
        key, run = assignment.key, assignment.run
        log = _Log(self._files, log_key(key, run.run_id, run.attempt))
        outcome = self._run(attempt_of(assignment), stop, log)
        stop_reason = stop.reason()
        try:
            if not outcome.begun:
                log.discard()
                outcome, stop_reason = Outcome("CANCELLED", outcome.error), NOT_BEGUN
            detail = self._store(assignment, outcome, log)
        except (OSError, PunctualError) as error:
            log.discard()
            outcome = Outcome.failed(f"The output could not be stored: {error}")
            detail = detail_of(assignment, outcome)
        finished = FinishedAttempt(
            key, run.run_id, run.token, RunStatus(outcome.status), outcome.retryable, detail
        )
        return EndedAttempt(assignment, finished, stop_reason or stop.reason())

    def _run(self, attempt: Attempt, stop: StopSignal, log: _Log) -> Outcome:
        try:
            if attempt.task["type"] == "script":
                retry_not_begun(log.open, stop.wait)
        except NotBegun as error:
            return Outcome("FAILED", str(error), begun=False)
        except PunctualError as error:
            return Outcome.failed(f"The log could not be opened: {error.message}")
        return self._attempt_runner.run(attempt, stop, log)

    def _store(self, assignment: Assignment, outcome: Outcome, log: _Log) -> Detail:
        """Store the output and the log, unless the job discards them.

        Return the detail with their names.

        While no file can be opened, this waits. Without the file the result would be lost.
        """
        detail = detail_of(assignment, outcome)
        if detail.discarded:
            log.discard()
            return detail
        if outcome.output:
            output_name = output_key(assignment.key, assignment.run.run_id, assignment.run.attempt)
            retry_until_free(
                lambda: self._files.put(output_name, outcome.output, outcome.output_type)
            )
            detail = replace(detail, output_blob=output_name, output_size=len(outcome.output))
        log_blob, log_size = log.end()
        return replace(detail, log_blob=log_blob, log_size=log_size) if log_blob else detail


def log_ended_run(log: Log, finished: FinishedAttempt, run: Run) -> None:
    """Log a run that took time or failed.

    Only the first line of its error is logged. The other lines are output of a script, which the
    run keeps.
    """
    log(
        "run_ended" if run.ended_at else "attempt_failed",
        job_id=finished.key.job_id,
        run_id=finished.run_id,
        attempt=run.attempt if run.ended_at else run.attempt - 1,
        status=run.status.value if run.ended_at else finished.status.value,
        error=finished.detail.error.partition("\n")[0],
    )
