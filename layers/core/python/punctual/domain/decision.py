"""What `decide` answers."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from punctual.domain.answer import Verdict
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run


class Decision(Struct, frozen=True, gc=False):
    """The new head (the old one itself where nothing changed) and what to do outside, in order."""

    head: JobState
    changed: bool
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    again_at: datetime | None = None
    timer_at: datetime | None = None  # put before the swap
    leases: Mapping[str, Lease | None] = {}  # set or dropped with the swap
    required: Mapping[str, Lease] = {}  # the swap holds only if these are as they were read
    sends: tuple[Run, ...] = ()
    records: tuple[Run, ...] = ()  # ended: their history rows
    kills: tuple[str, ...] = ()  # holders to be told
    attempts: tuple[
        tuple[Run, str], ...
    ] = ()  # attempts that ended without ending their run, or lost
