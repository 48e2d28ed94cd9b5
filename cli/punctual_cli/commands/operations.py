"""The commands punctual operations list, show, watch and cancel, and acting on many jobs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input.bulk_filters import BulkOptions
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, fetch_up_to
from punctual_cli.input.prompting import confirm
from punctual_cli.output import answers, operation_views, progress
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Operation

OperationId = Annotated[str, typer.Argument(metavar="OPERATION", help="Id of the operation.")]
_QUESTIONS = {
    "pause": "Pause",
    "resume": "Resume",
    "cancel": "Cancel permanently",
    "run_now": "Run now",
    "retry": "Retry",
}


def act_on_many(
    session: Session,
    action: Any,
    bulk_filter: dict[str, Any],
    bulk: BulkOptions,
    **fields: Any,
) -> None:
    """Show what matches, ask, begin an operation, and show its progress."""
    client = session.client
    with progress.spinner(session, "Finding what matches"):
        preview = client.operations.preview(action, bulk_filter, all=bulk.is_all)
    if bulk.dry_run and session.as_json:
        answers.write_json(preview.raw)
        return
    if not session.as_json:
        operation_views.print_preview(session, preview, action)
    if bulk.dry_run or (not preview.matched and not session.as_json):
        return
    count = operation_views.count_text(preview.matched, action)
    if not confirm(session, f"{_QUESTIONS[action]} {count}?", bulk.yes):
        raise CommandError("Nothing was changed.", ExitCode.REFUSED)
    operation = client.operations.begin(action, bulk_filter, all=bulk.is_all, **fields)
    _watch_to_end(session, operation)


def list_operations(session: Session, limit: Limit = DEFAULT_LIST_LIMIT) -> None:
    """List the operations of the last 7 days, newest first."""
    operations = fetch_up_to(
        session, limit, lambda max_items: session.client.operations.list(limit=max_items)
    )
    answers.write_items(
        session, operations, lambda shown: operation_views.print_table(session, shown)
    )


def show(session: Session, operation: OperationId) -> None:
    """Show an operation with its progress and its first errors."""
    answers.write_item(
        session,
        session.client.operations.get(operation),
        lambda shown: operation_views.print_card(session, shown),
    )


def watch(session: Session, operation: OperationId) -> None:
    """Show the progress of an operation until it ends.

    Ctrl-C ends only the display. Exit code 1 if it failed for a job or run.
    """
    _watch_to_end(session, session.client.operations.get(operation))


def cancel(session: Session, operation: OperationId) -> None:
    """Stop an operation.

    What is done stays done.
    """
    operation_views.write_ended(session, session.client.operations.cancel(operation))


def _watch_to_end(session: Session, operation: "Operation") -> None:
    ended = operation_views.watch(session, operation)
    operation_views.write_ended(session, ended)
    if ended.failed:
        raise typer.Exit(ExitCode.FAILED)
