"""The runs that this node holds: the work of each, for a thread, and what it leaves in files."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from punctual.domain.errors import PunctualError
from punctual.domain.run import RunStatus
from punctual.engine.execution.executor import Assignment, Executor, Finished
from punctual.engine.execution.leases import LeaseKeeper
from punctual.engine.ports.rows import Detail, Key
from punctual.engine.queries.jobs import log_name, output_name
from punctual.tasks.assignment import attempt_of as attempt_of
from punctual.tasks.assignment import detail_of
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.registry import Registry
from punctual.tasks.script.open_files import NotBegun, beginning, retried, until_free

NOT_BEGUN = "NOT_BEGUN"  # why a run is given back: there was no room to begin it


class Files(Protocol):
    """The blobs of the node, which threads may write."""

    def put(self, name: str, data: bytes, content_type: str) -> None: ...

    def open_log(self, name: str) -> "LogFile": ...


class LogFile(Protocol):
    """A log that is open for as long as its attempt lasts."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> int: ...

    def discard(self) -> None: ...


class Ended(NamedTuple):
    """How an attempt ended, for the node to write, and the wish that had stopped it, if any."""

    assignment: Assignment
    finished: Finished
    stopped: str

    @property
    def has_ended(self) -> bool:
        """A stop that came when the work had ended anyway changes nothing."""
        return self.finished.status is not RunStatus.CANCELLED


class _Log:
    """Appends what a task prints to its log, which readers see while it runs."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._file: LogFile | None = None

    def open(self) -> None:
        """Open the log of a task that may print, before it begins."""
        with beginning():
            self._file = self._files.open_log(self._name)

    def log(self, data: bytes) -> None:
        if self._file is None:
            self._file = until_free(lambda: self._files.open_log(self._name))
        self._file.write(data)

    def end(self) -> tuple[str, int]:
        """Return the name and the size of what a row is to name; no name for an empty log."""
        file, self._file = self._file, None
        size = 0 if file is None else file.end()
        return (self._name if size else ""), size

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(PunctualError):  # what stays has no row, and no reader finds it
                file.discard()


class RunningTasks(LeaseKeeper):
    """Safe to call from the node's loop only; the work itself runs in threads."""

    def __init__(
        self,
        executor: Executor,
        registry: Registry,
        files: Files,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(executor, monotonic)
        self._registry = registry
        self._files = files

    def is_lost(self, _assignment: Assignment) -> bool:
        """Never: the lock on the folder proves that no other process can take the run."""
        return False

    def take(self, assignment: Assignment, ended: Callable[[Ended], None]) -> Callable[[], None]:
        """The work of a claimed run, to be called in a thread; it calls `ended` once."""
        stop = StopSignal()
        self.add(assignment, stop)

        def work() -> None:
            ended(self._perform(assignment, stop))

        return work

    def _perform(self, assignment: Assignment, stop: StopSignal) -> Ended:
        key, run = assignment.key, assignment.run
        log = _Log(self._files, log_name(key, run.run_id, run.token))
        outcome = self._run(attempt_of(assignment), stop, log)
        stopped = stop.wanted()
        try:
            if not outcome.begun:
                log.discard()
                outcome, stopped = Outcome("CANCELLED", outcome.error), NOT_BEGUN
            detail = self._keep(key, assignment, outcome, log)
        except (OSError, PunctualError) as error:
            log.discard()
            outcome = Outcome.failed(f"The output could not be stored: {error}")
            detail = detail_of(outcome)
        finished = Finished(
            key, run.run_id, run.token, RunStatus(outcome.status), outcome.retryable, detail
        )
        return Ended(assignment, finished, stopped or stop.wanted())

    def _run(self, attempt: Attempt, stop: StopSignal, log: _Log) -> Outcome:
        try:
            if attempt.task["type"] == "script":
                retried(log.open, stop.wait)
        except NotBegun as error:
            return Outcome("FAILED", str(error), begun=False)
        except PunctualError as error:
            return Outcome.failed(f"The log could not be opened: {error.message}")
        return self._registry.run(attempt, stop, log)

    def _keep(self, key: Key, assignment: Assignment, outcome: Outcome, log: _Log) -> Detail:
        """Store the output and the log; a lack of open files delays it for as long as it lasts."""
        detail = detail_of(outcome)
        run = assignment.run
        if outcome.output:
            name = output_name(key, run.run_id, run.token)
            until_free(lambda: self._files.put(name, outcome.output, outcome.output_type))
            detail = msgspec.structs.replace(
                detail, output_blob=name, output_size=len(outcome.output)
            )
        blob, size = log.end()
        return msgspec.structs.replace(detail, log_blob=blob, log_size=size) if blob else detail
