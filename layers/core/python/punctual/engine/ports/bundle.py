"""The value that holds all ports."""

from dataclasses import dataclass

from punctual.engine.ports.audit_log import AuditLog
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.feed import Feed
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.notifications import Notifications
from punctual.engine.ports.partitions import Buckets
from punctual.engine.ports.receipts import Receipts
from punctual.engine.ports.run_queue import Messages
from punctual.engine.ports.timers import Timers
from punctual.engine.ports.wakeups import WakeUps


@dataclass(frozen=True)
class Ports:
    """All ports of the engine, as an adapter wires them."""

    heads: JobStates
    timers: Timers
    messages: Messages
    notices: Notifications
    history: History
    blobs: Blobs
    buckets: Buckets
    wake: WakeUps
    receipts: Receipts
    feed: Feed
    audit: AuditLog
