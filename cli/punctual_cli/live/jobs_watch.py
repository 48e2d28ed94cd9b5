"""The command punctual jobs watch: each change of jobs and runs, as it happens."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.live.top_view import LISTED_LIVE_STATUSES, MAX_LISTED_RUNS
from punctual_cli.output import answers, run_views
from punctual_cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from punctual.client import Change

OptionalJob = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="A job by id or name. Default: all jobs.")
]


def watch(session: Session, job: OptionalJob = None) -> None:
    """Show each change of jobs and their runs, until Ctrl-C."""
    job_id = None if job is None else session.client.jobs.id_of(job)
    names: dict[str, str] = {}
    for change in _changes(session, job_id):
        if session.as_json:
            answers.write_json_line(change.raw or {"kind": change.kind})
            continue
        if change.job is not None:
            names[change.job.job_id] = change.job.name
        line = _line(session, change, names)
        if line is not None:
            session.screen.print_line(line)


def _changes(session: Session, job_id: str | None) -> "Iterator[Change]":
    """Yield each change. Where changes are missing, the live runs of the lists come instead."""
    from punctual.client import Change

    for change in session.client.changes(job=job_id):
        yield change
        if change.kind == "gap":
            live_runs = session.client.runs.list(
                job_id, status=LISTED_LIVE_STATUSES, limit=MAX_LISTED_RUNS
            )
            for run in live_runs:
                raw = {"kind": "run", "run": run.raw}
                yield Change(kind="run", job_id=run.job_id, run_id=run.run_id, run=run, raw=raw)


def _line(session: Session, change: "Change", names: dict[str, str]) -> "Text | None":
    screen = session.screen
    at = change.at or session.clock()
    head = screen.cell(f"{at.astimezone():%H:%M:%S}  ")
    if change.kind == "gap":
        return head + screen.cell("Some changes are missing. The live runs follow.")
    if change.kind == "job":
        name = names.get(change.job_id or "", change.job_id)
        if change.job is None:
            return head + screen.cell(f"job  {name}  is forgotten")
        name = change.job.name
        next_run = screen.long_time(change.job.next_run_time)
        tail = "" if next_run is None else f"  next run {next_run}"
        return head + screen.cell(f"job  {name}  ") + screen.status(change.job.status) + tail
    if change.run is None:
        return None
    run = change.run
    text = run_views.state_line(session, run).removeprefix(run.status)
    name = run.job_name or names.get(run.job_id, run.job_id)
    return head + screen.cell(f"run  {name}  ") + screen.status(run.status) + screen.cell(text)
