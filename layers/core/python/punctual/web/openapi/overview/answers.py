"""The models of answers that say how things stand."""

from typing import Annotated, Literal

from pydantic import Field

from punctual.web.openapi.answers import Count, Id, NextToken, ResponseModel, Time

FailureId = Annotated[
    str,
    Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{12}$"),
]


class Acknowledgement(ResponseModel):
    by: str
    at: Time
    note: str | None


class Failure(ResponseModel):
    failure_id: FailureId
    job_id: Id
    job_name: str | None
    error: str
    status: Literal["FAILED", "TIMED_OUT"]
    count: Annotated[int, Field(ge=1)]
    first_at: Time
    last_at: Time
    last_run_id: Id
    acknowledged: Acknowledgement | None


class FailurePage(ResponseModel):
    failures: list[Failure]
    next_token: NextToken


class OverviewFact(ResponseModel):
    code: Literal[
        "NO_WORD_FROM_PLANNER",
        "NO_WORD_FROM_EXECUTORS",
        "JOBS",
        "LATE_RUNS",
        "FAILURES",
        "KNOWN_FAILURES",
        "PAUSED_PAST_UNTIL",
        "LIMIT_NEARLY_USED",
        "NEXT_START",
    ]
    text: str
    count: Count


class Overview(ResponseModel):
    verdict: Literal["OK", "WARN", "BAD", "BLIND"]
    sentence: str
    since: Time | None
    facts: list[OverviewFact]
