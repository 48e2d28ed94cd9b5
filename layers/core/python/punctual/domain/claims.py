"""The identity of a claim: what a claim token says."""

from typing import NamedTuple


class ClaimIdentity(NamedTuple):
    """One attempt of a run, and the fencing token that its claim drew."""

    tenant: str
    job_id: str
    run_id: str
    attempt_number: int
    token: int


class OutputUpload(NamedTuple):
    """An output that an executor stores by itself, as it announced it."""

    size: int
    content_type: str
