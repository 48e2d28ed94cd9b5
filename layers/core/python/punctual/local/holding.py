"""The runs that this node holds: the work of each, for a thread, and what it leaves in files."""

from collections.abc import Callable
from time import sleep
from typing import NamedTuple, Protocol

import msgspec

from punctual.domain.errors import PunctualError
from punctual.domain.run import Status
from punctual.engine.executor import Assignment, Executor, Finished
from punctual.engine.holding import Claims
from punctual.engine.ports import Detail, Key
from punctual.engine.search import log_name, output_name
from punctual.tasks.attempting import attempt_of as attempt_of
from punctual.tasks.attempting import detail_of
from punctual.tasks.contract import Outcome, StopSignal
from punctual.tasks.open_files import NO_MORE, retried
from punctual.tasks.registry import Registry

NOT_BEGUN = "NOT_BEGUN"  # why a run is given back: there was no room to begin it


class Files(Protocol):
    """The blobs of the node, which threads may write."""

    def put(self, name: str, data: bytes, content_type: str) -> None: ...

    def append(self, name: str, data: bytes) -> None: ...

    def seal(self, name: str) -> int: ...


class Ended(NamedTuple):
    """How an attempt ended, for the node to write, and the wish that had stopped it, if any."""

    assignment: Assignment
    finished: Finished
    stopped: str

    @property
    def has_ended(self) -> bool:
        """A stop that came when the work had ended anyway changes nothing."""
        return self.finished.status is not Status.CANCELLED


class _Log:
    """Appends what a task prints to its log, which readers see while it runs."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name

    def log(self, data: bytes) -> None:
        retried(lambda: self._files.append(self._name, data), sleep)


class Holding(Claims):
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
        log = log_name(key, run.run_id, run.token)
        outcome = self._registry.run(attempt_of(assignment), stop, _Log(self._files, log))
        stopped = stop.wanted()
        if outcome.error.endswith(NO_MORE) and outcome.http_status is None and not stopped:
            outcome, stopped = Outcome("CANCELLED", NO_MORE), NOT_BEGUN
        try:
            detail = retried(lambda: self._keep(key, assignment, outcome, log), sleep)
        except (OSError, PunctualError) as error:
            outcome = Outcome.failed(f"The output could not be stored: {error}")
            detail = detail_of(outcome)
        finished = Finished(
            key, run.run_id, run.token, Status(outcome.status), outcome.retryable, detail
        )
        return Ended(assignment, finished, stopped or stop.wanted())

    def _keep(self, key: Key, assignment: Assignment, outcome: Outcome, log: str) -> Detail:
        detail = detail_of(outcome)
        run = assignment.run
        if outcome.output:
            name = output_name(key, run.run_id, run.token)
            self._files.put(name, outcome.output, outcome.output_type)
            detail = msgspec.structs.replace(
                detail, output_blob=name, output_size=len(outcome.output)
            )
        size = self._files.seal(log)
        if size:
            detail = msgspec.structs.replace(detail, log_blob=log, log_size=size)
        return detail
