"""Show operations: what they reach, their progress and their result."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from punctual_cli.output import answers, progress
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import BulkPreview, Operation

MAX_SHOWN_ERRORS = 10
DONE_WORDS = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "run_now": "started",
    "retry": "retried",
}


def count_text(number: int, action: str) -> str:
    """Return a number of what the action reaches.

    >>> count_text(1, "pause"), count_text(1200, "retry")
    ('1 job', '1,200 runs')
    """
    noun = "run" if action == "retry" else "job"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_preview(session: Session, preview: "BulkPreview", action: str) -> None:
    screen = session.screen
    if not preview.matched:
        screen.print_line(f"No {'run' if action == 'retry' else 'job'} matches.")
        return
    screen.print_line(f"{count_text(preview.matched, action)}:")
    columns = [Column("NAME", min_width=8), Column("RUN" if action == "retry" else "JOB")]
    screen.print_table(
        [Column("", min_width=1), *columns],
        [["", item.job_name or item.job_id, item.run_id or item.job_id] for item in preview.first],
    )
    remaining = preview.matched - len(preview.first)
    if remaining:
        screen.print_line(f"  and {remaining:,} more")


def watch(session: Session, operation: "Operation") -> "Operation":
    """Show the progress of an operation until it ends. Ctrl-C ends only the display."""
    client = session.client
    title = f"{operation.action.replace('_', ' ').capitalize()}"
    try:
        with progress.bar(session, title, operation.matched) as advance:
            advance_to = progress.advance_to(advance)
            return client.operations.wait_for(
                operation, on_progress=lambda state: advance_to(state.done + state.failed)
            )
    except KeyboardInterrupt:
        session.screen.print_note(
            "The operation continues. "
            f"Show it again with: punctual operations watch {operation.operation_id}\n"
            f"Cancel it with: punctual operations cancel {operation.operation_id}"
        )
        raise


def print_result(session: Session, operation: "Operation") -> None:
    """Print what became of an operation, with the first errors."""
    screen = session.screen
    word = DONE_WORDS.get(operation.action, "done")
    style = "green" if operation.ended and not operation.failed else "yellow"
    screen.print_line(f"{count_text(operation.done, operation.action)} {word}.", style)
    rest = operation.matched - operation.done - operation.failed
    if rest:
        state = "left as they were" if operation.ended else "still to come"
        screen.print_line(f"{count_text(rest, operation.action)} {state}.")
    if not operation.failed:
        return
    screen.print_line(f"{count_text(operation.failed, operation.action)} failed:", "red")
    for error in operation.errors[:MAX_SHOWN_ERRORS]:
        screen.print_line(f"  {error.run_id or error.job_id}  {error.message}")
    if operation.failed > MAX_SHOWN_ERRORS:
        screen.print_line(f"  and {operation.failed - MAX_SHOWN_ERRORS:,} more")


def print_card(session: Session, operation: "Operation") -> None:
    screen = session.screen
    screen.print_pairs(
        [
            ("Operation", operation.operation_id),
            ("Action", operation.action),
            ("Filter", _filter_text(operation)),
            ("Status", screen.status(operation.status)),
            ("Matched", count_text(operation.matched, operation.action)),
            ("Done", f"{operation.done:,}"),
            ("Failed", f"{operation.failed:,}"),
            ("Until", None if operation.until is None else screen.long_time(operation.until)),
            ("Note", operation.note),
            ("Created", screen.long_time(operation.created_at)),
            ("Created by", operation.created_by),
            ("Ended", None if operation.ended_at is None else screen.long_time(operation.ended_at)),
            *(
                ("Error", f"{error.run_id or error.job_id}  {error.message}")
                for error in operation.errors[:MAX_SHOWN_ERRORS]
            ),
        ]
    )


def print_table(session: Session, operations: Sequence["Operation"]) -> None:
    if not operations:
        session.screen.print_line("No operations.")
        return
    columns = [
        *(Column("OPERATION"), Column("ACTION"), Column("STATUS"), Column("DONE")),
        *(Column("FAILED"), Column("CREATED"), Column("FILTER", min_width=8)),
    ]
    session.screen.print_table(columns, [_row(session, operation) for operation in operations])


def write_ended(session: Session, operation: "Operation") -> None:
    answers.write_item(session, operation, lambda ended: print_result(session, ended))


def _row(session: Session, operation: "Operation") -> list[Any]:
    return [
        operation.operation_id,
        operation.action,
        session.screen.status(operation.status),
        f"{operation.done:,} of {operation.matched:,}",
        f"{operation.failed:,}" if operation.failed else None,
        operation.created_at,
        _filter_text(operation),
    ]


def _filter_text(operation: "Operation") -> str:
    """Return the filter in one line, as `name=value` pairs."""
    pairs = [
        f"{name}={text}"
        for name, value in operation.filter.items()
        for text in (value if isinstance(value, list) else [value])
    ]
    return " ".join(pairs) or "all"
