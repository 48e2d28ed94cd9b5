"""Notifications of ended runs, derived when a decision records the run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.decision import Decision
from punctual.domain.job_state import JobState, Priority
from punctual.domain.run import ENDED, RunStatus
from punctual.domain.tenants.notify import told_of


class Notification(NamedTuple):
    """A notification of an entry in the `notify` list of a job.

    `entry` is the index in the list. The target is resolved at delivery.
    """

    tenant: str
    job_id: str
    run_id: str
    entry: int
    status: RunStatus
    occurrences: int  # number of occurrences that the run stands for
    version: int  # of the job state that recorded the run
    before: str  # the run's previous status, if known
    priority: Priority = Priority.NORMAL

    @property
    def id(self) -> str:
        """Return an id that is the same for each try. A bulk entry that grew has a new id."""
        grown = f".{self.occurrences}" if self.occurrences > 1 else ""
        return f"{self.run_id}.{self.entry}{grown}"


class Notifications(Protocol):
    def put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        """Put notifications by id. Return True for each that was accepted.

        An accepted notification is delivered, or fails for good after hours. A later evaluation
        puts the others. Until then their runs stay unrecorded.
        """


def notices_of(decision: Decision, before: JobState | None) -> Iterator[Notification]:
    """Yield the notifications of recorded runs. `before` is the job state as it was read."""
    head = decision.head
    if not head.notify:
        return
    stood = {run.run_id: run.status.value for run in before.runs} if before is not None else {}
    for run in decision.records:
        for entry in told_of(head.notify, run.status) if run.status in ENDED else ():
            yield Notification(
                head.tenant,
                head.job_id,
                run.run_id,
                entry,
                run.status,
                run.count,
                head.version,
                stood.get(run.run_id, ""),
                head.current.priority,
            )
