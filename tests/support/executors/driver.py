"""An executor of some kind, as the suite of the protocol sees it.

A driver has one job with one run. An executor takes the run, and the test decides what becomes of
the work: it goes on, ends, dies, or is frozen. The clock stands until the test moves it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.effects import message_of
from punctual.engine.execution.executor import Executor, FinishedAttempt
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.queries.views import RunView

OUTPUT = b"done"
ERROR = "no luck"
STEP_SECONDS = 10
MAX_STEPS = 60


class Answer(StrEnum):
    """What a renewal tells the holder of a claim."""

    OK = "OK"
    CANCEL = "CANCEL"
    LOST = "LOST"


class Picture(NamedTuple):
    """All that a claim could change."""

    view: RunView
    output: bytes | None


class Holder(ABC):
    """An executor with a claim, and the work that the test holds."""

    def __init__(self, run: Run) -> None:
        self.run = run  # as it was claimed, with its fencing token

    @abstractmethod
    def begin(self) -> None:
        """Begin the work, where a claim alone does not begin it."""

    @abstractmethod
    def renew(self) -> Answer:
        """Let the holder renew its claim. A frozen holder goes on with this."""

    @abstractmethod
    def end(self, status: RunStatus) -> None:
        """End the work, and let the holder report that. A frozen holder goes on with this."""

    @abstractmethod
    def release(self) -> None:
        """Return the claim before anything has begun."""

    @abstractmethod
    def kill(self) -> None:
        """End the executor without a word."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop the executor in the middle of its work."""

    @abstractmethod
    def report(self, status: RunStatus) -> bool:
        """Report an end with this claim alone. Return whether it was accepted."""


class ExecutorDriver(ABC):
    """The installation around an executor. The properties say what differs by design."""

    starts_at_once = True  # False: a claimed run is CLAIMED until the work begins
    counts_unbegun = True  # False: a holder that dies before the work begins is no attempt
    stores_output = True  # False: what the work prints is its log only
    returns_at_once = False  # True: a returned run is QUEUED at once, and not after a wait
    freezes_alone = True  # False: a frozen executor is its whole installation
    hears_cancel_at_once = False  # True: a cancel stops the work before the next renewal
    work_seconds = 100.0  # some leases long, and shorter than the timeout
    key: JobKey

    @abstractmethod
    def submit(self, **document: Any) -> None:
        """Submit the job, with a run that is due."""

    @abstractmethod
    def take(self) -> Holder:
        """Let an executor claim the queued run."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let time pass. Living holders renew, and leases that ended are evaluated."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the run, as a person does."""

    @property
    @abstractmethod
    def view(self) -> RunView:
        """Return the run with its attempts."""

    @abstractmethod
    def stored_blob(self, name: str) -> bytes | None:
        """Return a stored output."""

    @property
    @abstractmethod
    def executor(self) -> Executor:
        """Return an executor of the installation."""

    @property
    @abstractmethod
    def job_states(self) -> JobStates:
        """Return the store of job states."""

    @abstractmethod
    def do(self, request: Callable[[], Any]) -> Any:
        """Carry out a request with the rights, and in the transaction, that it needs."""

    def close(self) -> None:
        """End all work that is still held."""
        return

    @property
    def picture(self) -> Picture:
        view = self.view
        name = view.detail.output_blob
        return Picture(view, self.stored_blob(name) if name else None)

    @property
    def run(self) -> Run:
        return self.view.run

    def wait_for(self, *statuses: RunStatus) -> Run:
        """Let time pass until the run has one of these statuses."""
        for _ in range(MAX_STEPS):
            if self.run.status in statuses:
                return self.run
            self.pass_time(STEP_SECONDS)
        raise AssertionError(f"the run stays {self.run.status}; wanted {statuses}")

    def take_next(self) -> Holder:
        """Wait until the run is queued again, and let an executor claim it."""
        self.wait_for(RunStatus.QUEUED)
        return self.take()

    def claim_again(self) -> bool:
        """Let another executor claim the run of this job. Return whether it got the run."""

        def claim() -> bool:
            (stored,) = self.job_states.load([self.key]).values()
            (run,) = stored.state.runs
            return bool(self.executor.claim([message_of(self.key, run, stored.state)]).claimed)

        return bool(self.do(claim))

    def report_end(self, run: Run, status: RunStatus) -> bool:
        """Report an end with the token of this claim, as our own executors do."""
        detail = Detail(error=ERROR if status is RunStatus.FAILED else "")
        end = FinishedAttempt(self.key, run.run_id, run.token, status, True, detail)
        (result,) = self.do(lambda: self.executor.finish([end]))
        return bool(result.verdict is Verdict.OK)
