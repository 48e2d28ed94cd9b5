"""Find the job and the run that an argument means."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import Code, Trouble
from punctual_cli.input import completions

if TYPE_CHECKING:
    from punctual.client import Job, Punctual, Run

_UUID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LATEST = "latest"
MAX_SHOWN_MATCHES = 5

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's id, or its name.",
        autocompletion=completions.jobs,
        show_default=False,
    ),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The run's id; the latest by default."),
]


def job_of(client: "Punctual", reference: str) -> "Job":
    """Return the live job of a name, or the newest job if all have ended."""
    if _UUID_FORM.fullmatch(reference.lower()):
        return client.jobs.get(reference.lower())
    named = [job for job in client.jobs.list(name_prefix=reference) if job.name == reference]
    alive = [job for job in named if job.status in ("SCHEDULED", "PAUSED")]
    found = alive or named[:1]
    if not found:
        raise Trouble(
            f"There is no job {reference!r}.",
            Code.NOT_FOUND,
            "`punctual jobs list` shows what there is.",
        )
    if len(found) > 1:
        shown = "\n".join(f"  {job.job_id}  {job.status}" for job in found[:MAX_SHOWN_MATCHES])
        more = (
            f"\n  and {len(found) - MAX_SHOWN_MATCHES} more"
            if len(found) > MAX_SHOWN_MATCHES
            else ""
        )
        raise Trouble(
            f"{len(found)} jobs are called {reference!r}: say which by its id.\n{shown}{more}",
            Code.REFUSED,
        )
    return found[0]


def job_id_of(client: "Punctual", reference: str) -> str:
    """Return a job's id. An id is not checked, because the next call fails if it is unknown."""
    lowered = reference.lower()
    return lowered if _UUID_FORM.fullmatch(lowered) else job_of(client, reference).job_id


def run_of(client: "Punctual", job: str, run: str) -> "Run":
    """Return a run with its attempts."""
    job_id = job_id_of(client, job)
    if run != LATEST:
        return client.runs.get(job_id, _run_id(run))
    latest = next(iter(client.runs.list(job_id, limit=1)), None)
    if latest is None:
        raise Trouble(
            f"Job {job!r} has no run yet.",
            Code.NOT_FOUND,
            f"Run it now with `punctual jobs run {job}`.",
        )
    return client.runs.get(latest)


def _run_id(text: str) -> str:
    if not _UUID_FORM.fullmatch(text.lower()):
        raise Trouble(f"{text!r} is no run's id.", advice="`punctual runs list JOB` shows them.")
    return text.lower()
