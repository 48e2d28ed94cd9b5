"""The command punctual audit."""

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.input.completions import complete_jobs
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, From, Limit, To, fetch_up_to
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import AuditEntry


def audit(
    session: Session,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Only entries of the job with this id or name.",
            autocompletion=complete_jobs,
            show_default=False,
        ),
    ] = None,
    caller: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only actions of this caller.", show_default=False),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION", help="Only this action, such as job.update.", show_default=False
        ),
    ] = None,
    start: From = None,
    end: To = None,
    limit: Limit = DEFAULT_LIST_LIMIT,
) -> None:
    """List the changes and their callers, newest first.

    Requires the role admin.
    """
    now = session.clock()
    audit_entries = fetch_up_to(
        session,
        limit,
        lambda max_items: session.client.audit.list(
            job=job,
            caller=caller,
            action=action,
            from_=None if start is None else parse_time_option("--from", start, now),
            to=None if end is None else parse_time_option("--to", end, now),
            limit=max_items,
        ),
    )
    answers.write_items(session, audit_entries, lambda entries: _print_entries(session, entries))


def _print_entries(session: Session, entries: "list[AuditEntry]") -> None:
    screen = session.screen
    if not entries:
        screen.print_line("No entries.")
        return
    columns = [
        Column("WHEN"),
        Column("CALLER", min_width=8),
        Column("ACTION"),
        Column("WHAT", min_width=12),
    ]
    screen.print_table(
        columns,
        [[entry.at, entry.caller, entry.action, _target_text(entry)] for entry in entries],
    )


def _target_text(entry: "AuditEntry") -> str:
    """Return the target of an entry, by name if known, and the fields that changed."""
    name = (entry.after or entry.before or {}).get("name")
    target_id = entry.run_id or entry.job_id or entry.subject_token_id or ""
    count_suffix = f" ×{entry.count:,}" if entry.count > 1 else ""
    changed = ", ".join(_changed_fields(entry))
    if changed and entry.action == "job.update" and not name:
        # The fields come first, because a narrow terminal cuts off the end of a line.
        return f"{changed} ({target_id}){count_suffix}"
    return f"{name or target_id}{count_suffix}{changed and f': {changed}'}"


def _changed_fields(entry: "AuditEntry") -> list[str]:
    before, after = entry.before, entry.after
    if before is None or after is None:
        return []
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
