"""The commands punctual runs list, show, output, logs and watch."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import Code, Trouble
from punctual_cli.input.choices import RunStatus, RunTime, Trigger
from punctual_cli.input.completions import jobs as complete_jobs
from punctual_cli.input.job_flags import moment_of
from punctual_cli.input.options import (
    DEFAULT_LIST_LIMIT,
    From,
    Limit,
    Quiet,
    To,
    first,
    word,
    words,
)
from punctual_cli.input.references import LATEST, JobName, RunName, job_id_of, run_of
from punctual_cli.output import answers, run_views
from punctual_cli.output import watch as following
from punctual_cli.output.terminal_text import ColouredText
from punctual_cli.output.watch import WaitTimeout, patience
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run

ONE_BY_ONE = 20


def list_runs(
    session: Session,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Of this job alone.",
            autocompletion=complete_jobs,
            show_default=False,
        ),
    ] = None,
    status: Annotated[
        list[RunStatus] | None,
        typer.Option(help="One of these; repeatable.", case_sensitive=False, show_default=False),
    ] = None,
    trigger: Annotated[
        Trigger | None,
        typer.Option(help="What made them.", case_sensitive=False, show_default=False),
    ] = None,
    start: From = None,
    end: To = None,
    by: Annotated[
        RunTime,
        typer.Option(help="The time that is shown, and that --from and --to mean."),
    ] = RunTime.SCHEDULED,
    limit: Limit = DEFAULT_LIST_LIMIT,
    quiet: Quiet = False,
) -> None:
    """Runs, the newest first.

    With --status RUNNING: what runs now.
    """
    now = session.clock()
    of = None if job is None else job_id_of(session.client, job)
    found = first(
        session,
        limit,
        lambda most: session.client.runs.list(
            of,
            status=words(status),
            trigger=word(trigger),
            from_=None if start is None else moment_of("--from", start, now),
            to=None if end is None else moment_of("--to", end, now),
            by=None if start is None and end is None else word(by),
            limit=most,
        ),
    )
    if quiet:
        answers.ids(session, [run.run_id for run in found])
    elif session.as_json:
        answers.as_json([run.raw for run in found])
    else:
        run_views.table(session, found, by, _names(session, found) if of is None else None)


def _names(session: Session, runs: list[Any]) -> dict[str, str]:
    """Return job names for these runs, from one list of new jobs and a few single reads.

    A run shows its job's id if the name is missing here.
    """
    from punctual.client import NotFound

    wanted = {run.job_id for run in runs}
    if not wanted:
        return {}
    listed = session.client.jobs.list(limit=2 * DEFAULT_LIST_LIMIT)
    names = {job.job_id: job.name for job in listed if job.job_id in wanted}
    for job_id in sorted(wanted - set(names))[-ONE_BY_ONE:]:
        try:
            names[job_id] = session.client.jobs.get(job_id).name
        except NotFound:
            continue  # runs are kept longer than their job
    return names


def show(session: Session, job: JobName, run: RunName = LATEST) -> None:
    """A run with its attempts."""
    found = run_of(session.client, job, run)
    answers.one(session, found, lambda one: run_views.card(session, one))


Raw = Annotated[
    bool, typer.Option("--raw", help="Leave escape sequences as they are, also on a terminal.")
]


def output(
    session: Session,
    job: JobName,
    run: RunName = LATEST,
    to: Annotated[
        Path | None,
        typer.Option("--to", "-o", metavar="FILE", help="Into a file.", show_default=False),
    ] = None,
    raw: Raw = False,
) -> None:
    """What its task answered or printed, byte for byte.

    On a terminal only text and colours are shown, and other escape sequences are written out.
    """
    of = run_of(session.client, job, run)
    with _absent(of, "output"):
        found = session.client.runs.output(of)
    if session.as_json:
        text = {"output": found.text, "content_type": found.content_type}
        answers.as_json({**text, "truncated": found.truncated})
    elif to is not None:
        to.write_bytes(found.data)
        session.screen.note(f"{len(found.data):,} bytes in {to}.")
    elif sys.stdout.isatty() and not raw:
        _show_text([found.data.decode(errors="backslashreplace")], raw)
    else:
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    if found.truncated:
        session.screen.note("The output was cut: it was longer than what is kept.", "yellow")


def logs(
    session: Session,
    job: JobName,
    run: RunName = LATEST,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    raw: Raw = False,
) -> None:
    """What it wrote to its logs.

    Colours are kept, and other escape sequences are written out. With --json a line for each piece.
    """
    found = run_of(session.client, job, run)
    with _absent(found, "logs"):
        if follow:
            pieces = session.client.runs.follow_logs(found)
        else:
            pieces = iter([session.client.runs.logs(found).text])
        if session.as_json:
            for piece in pieces:
                answers.as_line({"text": piece})
        else:
            _show_text(pieces, raw)
    if follow:
        ended = session.client.runs.get(found)
        following.outcome(session, ended, logs_shown=True)


@contextmanager
def _absent(run: "Run", what: str) -> Iterator[None]:
    """Turn the 404 of a run without content into a sentence that says what to do."""
    from punctual.client import NotFound

    try:
        yield
    except NotFound as error:
        if run.ended:
            advice = f"See how it ended: punctual runs show {run.job_id} {run.run_id}"
        else:
            advice = f"Wait until it has ended: punctual runs watch {run.job_id} {run.run_id}"
        detail = error.problem.detail if error.problem else f"The run has no {what}."
        raise Trouble(f"{detail} It is {run.status}.", Code.NOT_FOUND, advice) from error


def _show_text(pieces: Iterable[str], raw: bool) -> None:
    """Write each piece at once. The text comes from a job, so control characters are escaped."""
    text = ColouredText()
    for piece in pieces:
        sys.stdout.write(piece if raw else text.piece(piece))
        sys.stdout.flush()
    sys.stdout.write(text.end())
    sys.stdout.flush()


def watch(
    session: Session, job: JobName, run: RunName = LATEST, timeout: WaitTimeout = None
) -> None:
    """Follow a run until it has ended.

    Exit code 1 if it did not succeed. With --json a line for each state.
    """
    until = patience(True, timeout)
    found = following.follow(session, run_of(session.client, job, run), until, as_stream=True)
    following.outcome(session, found)
