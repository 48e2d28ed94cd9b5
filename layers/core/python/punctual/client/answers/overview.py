"""Answers that say how things stand."""

from punctual.client.model import AwareDatetime, Model


class Acknowledgement(Model, frozen=True, kw_only=True):
    """A person knows of a failure."""

    by: str
    at: AwareDatetime | None = None
    note: str | None = None


class Failure(Model, frozen=True, kw_only=True):
    """One kind of error of one job, which has happened since its last success."""

    failure_id: str
    job_id: str
    job_name: str | None = None
    error: str = ""
    status: str = ""
    count: int = 1
    first_at: AwareDatetime | None = None
    last_at: AwareDatetime | None = None
    last_run_id: str | None = None
    acknowledged: Acknowledgement | None = None


class OverviewFact(Model, frozen=True, kw_only=True):
    code: str
    text: str
    count: int = 0


class Overview(Model, frozen=True, kw_only=True):
    """Whether everything is all right: `OK`, `WARN`, `BAD` or `BLIND`, in one sentence."""

    verdict: str
    sentence: str
    since: AwareDatetime | None = None
    facts: tuple[OverviewFact, ...] = ()
