"""The port for notifications of ended runs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from punctual.domain.job_state import Priority
from punctual.domain.run import RunStatus

# Returns the secrets that sign the webhooks of a tenant, the newest first.
WebhookSecrets = Callable[[str], Sequence[bytes]]


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
    previous_status: str  # the run's previous status, if known
    priority: Priority = Priority.NORMAL

    @property
    def id(self) -> str:
        """Return an id that is the same for each try. A bulk entry that grew has a new id."""
        suffix = f".{self.occurrences}" if self.occurrences > 1 else ""
        return f"{self.run_id}.{self.entry}{suffix}"


class Notifications(Protocol):
    def put(self, notifications: Sequence[Notification]) -> Sequence[bool]:
        """Put notifications by id. Return True for each that was accepted.

        An accepted notification is delivered, or fails for good after hours. A later evaluation
        puts the others. Until then their runs stay unrecorded.
        """
