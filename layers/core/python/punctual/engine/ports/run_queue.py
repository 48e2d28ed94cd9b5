"""The queue of runs that are due."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from punctual.domain.job_state import Lane, Priority


class Message(NamedTuple):
    """Run R of job J is queued, not before `due_at`."""

    tenant: str
    job_id: str
    run_id: str
    due_at: datetime
    priority: Priority
    lane: Lane
    version: int  # of the head whose swap sends it: part of the deduplication id
    task_type: str = ""  # lets an executor see what it can take

    def __hash__(self) -> int:
        return hash((self.job_id, self.run_id, self.version))


class Messages(Protocol):
    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """True for each that the queue has taken; what it has not is sent by a later look."""
