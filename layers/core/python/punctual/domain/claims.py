"""The identity of a claim: what a claim token says."""

from typing import NamedTuple

from punctual.domain.leases import RUN_LEASE


class ClaimIdentity(NamedTuple):
    """One attempt of a run, and the fencing token that its claim drew."""

    tenant: str
    job_id: str
    run_id: str
    attempt_number: int
    token: int
    lease_seconds: int = int(RUN_LEASE.total_seconds())  # how long a renewal holds the run


class OutputUpload(NamedTuple):
    """An output that an executor stores by itself, as it announced it."""

    size: int
    content_type: str
