"""The port for the queue of runs that are due."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.domain.job_state import Lane, Priority


class Message(NamedTuple):
    """A queued run of a job. It starts at `due_at` or later."""

    tenant: str
    job_id: str
    run_id: str
    due_at: datetime
    priority: Priority
    lane: Lane
    version: int  # of the job state that sends it; part of the deduplication id
    task_type: str = ""  # lets an executor check its capacity for this type

    def __hash__(self) -> int:
        return hash((self.job_id, self.run_id, self.version))


class RunQueue(Protocol):
    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Send the messages. Return True for each that the queue accepted.

        A later evaluation sends the others again.
        """
