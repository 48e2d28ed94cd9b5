"""The arguments that name a job or a run. The client finds the job of a name."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import completions

if TYPE_CHECKING:
    from punctual.client import Punctual, Run

_RUN_ID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LATEST_RUN = "latest"

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


def find_run(client: "Punctual", job: str, run: str) -> "Run":
    """Return a run of a job with its attempts. The client finds the job by its name."""
    if run != LATEST_RUN:
        return client.runs.get(job, _parse_run_id(run))
    latest = next(iter(client.runs.list(job, limit=1)), None)
    if latest is None:
        raise CommandError(
            f"Job {job!r} has no run yet.",
            ExitCode.NOT_FOUND,
            f"Run it now with `punctual jobs run {job}`.",
        )
    return client.runs.get(latest)


def _parse_run_id(text: str) -> str:
    if not _RUN_ID_FORM.fullmatch(text.lower()):
        raise CommandError(
            f"{text!r} is not the id of a run.",
            advice="List the runs with `punctual runs list JOB`.",
        )
    return text.lower()
