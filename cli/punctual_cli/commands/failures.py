"""The commands punctual failures list and acknowledge."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input.completions import complete_jobs
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, Quiet, fetch_up_to
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Failure

_FAILURE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9a-f]{12}")


def list_failures(
    session: Session, quiet: Quiet = False, limit: Limit = DEFAULT_LIST_LIMIT
) -> None:
    """List what failed and has not succeeded since.

    There is one line for each job and kind of error. The last that happened comes first.
    """
    listed = fetch_up_to(
        session, limit, lambda max_items: session.client.failures.list(limit=max_items)
    )
    if quiet:
        answers.write_ids(session, [failure.failure_id for failure in listed])
    else:
        answers.write_items(session, listed, lambda failures: print_failures(session, failures))


def acknowledge(
    session: Session,
    failure: Annotated[
        str,
        typer.Argument(
            metavar="FAILURE",
            help="Id of a failure, or id or name of a job: all of its failures.",
            autocompletion=complete_jobs,
        ),
    ],
    note: Annotated[
        str | None, typer.Option(help="What is known, for people.", show_default=False)
    ] = None,
) -> None:
    """Say that you know of a failure.

    It holds for this kind of error until a run of the job succeeds.
    """
    acknowledged = [
        session.client.failures.acknowledge(failure_id, note=note)
        for failure_id in _failure_ids(session, failure)
    ]
    answers.write_items(session, acknowledged, lambda failures: print_failures(session, failures))


def _failure_ids(session: Session, reference: str) -> list[str]:
    if _FAILURE_ID.fullmatch(reference):
        return [reference]
    failures = session.client.failures.list(job=reference)
    failure_ids = [failure.failure_id for failure in failures]
    if not failure_ids:
        raise CommandError(f"The job {reference} has no open failure.", ExitCode.NOT_FOUND)
    return failure_ids


def print_failures(session: Session, failures: "list[Failure]") -> None:
    if not failures:
        session.screen.print_line("No failures.", "green")
        return
    columns = [
        Column("JOB", min_width=10),
        Column("ERROR", min_width=16),
        Column("RUNS", align_right=True),
        Column("LAST"),
        Column("ACKNOWLEDGED", min_width=8),
    ]
    session.screen.print_table(columns, [_row(failure) for failure in failures])


def _row(failure: "Failure") -> list[Any]:
    acknowledged = failure.acknowledged
    text = None if acknowledged is None else acknowledged.note or f"to {acknowledged.by}"
    name = failure.job_name or failure.job_id
    return [name, failure.error, f"{failure.count:,}", failure.last_at, text]
