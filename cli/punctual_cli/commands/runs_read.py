"""The commands punctual runs list, show, output, logs and watch."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input.completions import complete_jobs
from punctual_cli.input.list_filters import RunListFilters
from punctual_cli.input.options import (
    DEFAULT_LIST_LIMIT,
    Limit,
    Quiet,
    fetch_up_to,
)
from punctual_cli.input.references import LATEST_RUN, JobName, RunName, find_run
from punctual_cli.output import answers, run_views
from punctual_cli.output import watch as run_watch
from punctual_cli.output.terminal_text import ColouredText
from punctual_cli.output.watch import WaitTimeout, max_wait_option
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run


def list_runs(
    session: Session,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Only runs of the job with this id or name.",
            autocompletion=complete_jobs,
            show_default=False,
        ),
    ] = None,
    *,
    filters: RunListFilters,
    limit: Limit = DEFAULT_LIST_LIMIT,
    quiet: Quiet = False,
) -> None:
    """List runs, newest first.

    --status RUNNING lists the active runs.
    """
    if job is not None and (filters.job_name or filters.tag):
        raise CommandError("--job-name and --tag select runs of all jobs: leave out JOB.")
    query = filters.query(session.clock())
    listed_runs = fetch_up_to(
        session,
        limit,
        lambda max_items: session.client.runs.list(job, **query, limit=max_items),
    )
    if quiet:
        answers.write_ids(session, [run.run_id for run in listed_runs])
    elif session.as_json:
        answers.write_json([run.raw for run in listed_runs])
    else:
        run_views.print_table(session, listed_runs, filters.by, shows_jobs=job is None)


def show(session: Session, job: JobName, run: RunName = LATEST_RUN) -> None:
    """Show one run with its attempts."""
    found_run = find_run(session.client, job, run)
    answers.write_item(
        session, found_run, lambda shown_run: run_views.print_card(session, shown_run)
    )


Raw = Annotated[bool, typer.Option("--raw", help="Do not escape control characters on a terminal.")]


def output(
    session: Session,
    job: JobName,
    run: RunName = LATEST_RUN,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", "-o", metavar="FILE", help="Write the output to FILE.", show_default=False
        ),
    ] = None,
    raw: Raw = False,
) -> None:
    """Print the stored output of a run, byte for byte.

    On a terminal, control characters other than colours are escaped.
    """
    found_run = find_run(session.client, job, run)
    prints_text = session.as_json or (to is None and sys.stdout.isatty() and not raw)
    if not prints_text:
        _save_output(session, found_run, to)
        return
    with _explain_missing(found_run, "output"):
        stored_output = session.client.runs.output(found_run)
    if session.as_json:
        text = {"output": stored_output.text, "content_type": stored_output.content_type}
        answers.write_json({**text, "truncated": stored_output.truncated})
    else:
        _write_text([stored_output.data.decode(errors="backslashreplace")], raw)
    _note_truncation(session, stored_output.truncated)


def _save_output(session: Session, run: "Run", to: Path | None) -> None:
    """Write the output to a file or to standard output. It is never in memory as a whole."""
    with _explain_missing(run, "output"):
        saved = session.client.runs.save_output(run, to=sys.stdout.buffer if to is None else to)
    if to is None:
        sys.stdout.buffer.flush()
    else:
        session.screen.print_note(f"Wrote {saved.size:,} bytes to {to}.")
    _note_truncation(session, saved.truncated)


def _note_truncation(session: Session, is_truncated: bool) -> None:
    if is_truncated:
        session.screen.print_note("The output was truncated at its size limit.", "yellow")


def logs(
    session: Session,
    job: JobName,
    run: RunName = LATEST_RUN,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the logs until the run has ended.")
    ] = False,
    raw: Raw = False,
) -> None:
    """Print the logs of a run.

    Control characters other than colours are escaped. With --json, print one document per piece.
    """
    found_run = find_run(session.client, job, run)
    with _explain_missing(found_run, "logs"):
        if follow:
            pieces = session.client.runs.follow_logs(found_run)
        else:
            pieces = iter([session.client.runs.logs(found_run).text])
        if session.as_json:
            for piece in pieces:
                answers.write_json_line({"text": piece})
        else:
            _write_text(pieces, raw)
    if follow:
        ended_run = session.client.runs.get(found_run)
        run_watch.exit_with_outcome(session, ended_run, logs_shown=True)


@contextmanager
def _explain_missing(run: "Run", content_name: str) -> Iterator[None]:
    """Turn the 404 of a run without content into a sentence that says what to do."""
    from punctual.client import NotFound

    try:
        yield
    except NotFound as error:
        if run.ended:
            advice = f"Show the run with: punctual runs show {run.job_id} {run.run_id}"
        else:
            advice = f"Wait for its end with: punctual runs watch {run.job_id} {run.run_id}"
        detail = error.problem.detail if error.problem else f"The run has no {content_name}."
        raise CommandError(
            f"{detail} The run is {run.status}.", ExitCode.NOT_FOUND, advice
        ) from error


def _write_text(pieces: Iterable[str], raw: bool) -> None:
    """Write each piece at once. The text comes from a job, so control characters are escaped."""
    coloured_text = ColouredText()
    for piece in pieces:
        sys.stdout.write(piece if raw else coloured_text.escape(piece))
        sys.stdout.flush()
    sys.stdout.write(coloured_text.finish())
    sys.stdout.flush()


def watch(
    session: Session, job: JobName, run: RunName = LATEST_RUN, timeout: WaitTimeout = None
) -> None:
    """Follow a run until it has ended.

    Exit code 1 if it did not succeed. With --json, print one document per state.
    """
    max_wait = max_wait_option(True, timeout)
    ended_run = run_watch.follow_run(
        session, find_run(session.client, job, run), max_wait, as_stream=True
    )
    run_watch.exit_with_outcome(session, ended_run)
