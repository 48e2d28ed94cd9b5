"""The value that `decide` returns."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from punctual.domain.answer import Verdict
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run


class Decision(Struct, frozen=True, gc=False):
    """The new job state, and what the caller writes and sends.

    `state` is the old object if nothing changed.
    """

    state: JobState
    changed: bool
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    retry_at: datetime | None = None
    timer_at: datetime | None = None  # the timer to put before the swap
    leases: Mapping[str, Lease | None] = {}  # written with the swap; None deletes
    required_leases: Mapping[str, Lease] = {}  # the swap fails unless these leases are as read
    runs_to_send: tuple[Run, ...] = ()
    runs_to_record: tuple[Run, ...] = ()  # ended runs that need a history row
    run_ids_to_stop: tuple[str, ...] = ()  # ids of held runs to stop
    ended_attempts: tuple[tuple[Run, str], ...] = ()  # lost, or failed before a retry
