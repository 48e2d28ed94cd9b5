"""The operation that lists the versions of a job, its answers and their descriptions."""

from typing import Annotated

from pydantic import Field

from punctual.web.openapi.answers import JobDefinition, NextToken, ResponseModel, Time
from punctual.web.openapi.operation import (
    JOB_ID_PARAMETER,
    PAGE_PARAMETERS,
    Operation,
    Response,
)


class JobVersion(ResponseModel):
    version: Annotated[int, Field(ge=1)]
    at: Time
    by: str
    changed: list[str]
    job: JobDefinition


class JobVersionPage(ResponseModel):
    versions: list[JobVersion]
    next_token: NextToken


JOB_VERSION_MODELS = (JobVersionPage,)

LIST_VERSIONS = Operation(
    "GET /jobs/{job_id}/versions",
    "listJobVersions",
    "Jobs",
    "List the versions of a job",
    {200: Response("A page of versions, newest first.", "JobVersionPage")},
    "Each change of the fields makes a version; pause and cancel make none. Runs keep the version "
    "that they were made with, and name it in `job_version`.",
    (JOB_ID_PARAMETER, *PAGE_PARAMETERS),
)
