"""Notices: somebody is to be told how a run ended. Made where its end is put on record."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.decision import Decision
from punctual.domain.job_state import JobState, Priority
from punctual.domain.run import ENDED, RunStatus
from punctual.domain.tenants.notify import told_of


class Notification(NamedTuple):
    """Tell the entry of this number. Whom that is, the definition in force says when it is told."""

    tenant: str
    job_id: str
    run_id: str
    entry: int
    status: RunStatus
    occurrences: int  # that the run stands for
    version: int  # of the head whose swap told of it
    before: str  # the run's status until then, as far as it is known
    priority: Priority = Priority.NORMAL

    @property
    def id(self) -> str:
        """The same however often it is made and tried; a bulk entry that grew is another."""
        grown = f".{self.occurrences}" if self.occurrences > 1 else ""
        return f"{self.run_id}.{self.entry}{grown}"


class Notifications(Protocol):
    def put(self, notices: Sequence[Notification]) -> Sequence[bool]:
        """True for each that will be told, or given up after hours; the same twice is one.

        What is not taken is put by a later look, and until then its run stays unrecorded.
        """


def notices_of(decision: Decision, before: JobState | None) -> Iterator[Notification]:
    """Of all that this decision puts on record; `before` is the head as it was read."""
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
