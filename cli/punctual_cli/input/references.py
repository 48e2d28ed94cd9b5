"""Find the job and the run that an argument means."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import completions

if TYPE_CHECKING:
    from punctual.client import Job, Punctual, Run

_UUID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LATEST_RUN = "latest"
MAX_SHOWN_MATCHES = 5

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id or name of the job.",
        autocompletion=completions.complete_jobs,
        show_default=False,
    ),
]
OneOrManyJobs = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]",
        help="Id or name of the job. Without it, the filters name many jobs.",
        autocompletion=completions.complete_jobs,
        show_default=False,
    ),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of the run."),
]


def find_job(client: "Punctual", reference: str) -> "Job":
    """Return the live job of a name, or the newest job if all have ended."""
    if _UUID_FORM.fullmatch(reference.lower()):
        return client.jobs.get(reference.lower())
    candidates = list(client.jobs.list(name=reference, status=("SCHEDULED", "PAUSED"))) or list(
        client.jobs.list(name=reference, limit=1)
    )
    if not candidates:
        raise CommandError(
            f"There is no job {reference!r}.",
            ExitCode.NOT_FOUND,
            "List the jobs with `punctual jobs list`.",
        )
    if len(candidates) > 1:
        listing = "\n".join(
            f"  {job.job_id}  {job.status}" for job in candidates[:MAX_SHOWN_MATCHES]
        )
        omitted = (
            f"\n  and {len(candidates) - MAX_SHOWN_MATCHES} more"
            if len(candidates) > MAX_SHOWN_MATCHES
            else ""
        )
        raise CommandError(
            f"{len(candidates)} jobs are named {reference!r}. Use an id:\n{listing}{omitted}",
            ExitCode.REFUSED,
        )
    return candidates[0]


def find_job_id(client: "Punctual", reference: str) -> str:
    """Return a job's id. An id is not checked, because the next call fails if it is unknown."""
    job_id = reference.lower()
    return job_id if _UUID_FORM.fullmatch(job_id) else find_job(client, reference).job_id


def find_run(client: "Punctual", job: str, run: str) -> "Run":
    """Return a run with its attempts."""
    job_id = find_job_id(client, job)
    if run != LATEST_RUN:
        return client.runs.get(job_id, _parse_run_id(run))
    latest = next(iter(client.runs.list(job_id, limit=1)), None)
    if latest is None:
        raise CommandError(
            f"Job {job!r} has no run yet.",
            ExitCode.NOT_FOUND,
            f"Run it now with `punctual jobs run {job}`.",
        )
    return client.runs.get(latest)


def _parse_run_id(text: str) -> str:
    if not _UUID_FORM.fullmatch(text.lower()):
        raise CommandError(
            f"{text!r} is not the id of a run.",
            advice="List the runs with `punctual runs list JOB`.",
        )
    return text.lower()
