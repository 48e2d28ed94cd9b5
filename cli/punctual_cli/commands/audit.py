"""The command punctual audit."""

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.input.completions import jobs as complete_jobs
from punctual_cli.input.job_flags import moment_of
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, From, Limit, To, first
from punctual_cli.input.references import job_id_of
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
            help="What was done to this job.",
            autocompletion=complete_jobs,
            show_default=False,
        ),
    ] = None,
    caller: Annotated[
        str | None, typer.Option(metavar="NAME", help="By this caller.", show_default=False)
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help="Such as job.update.", show_default=False),
    ] = None,
    start: From = None,
    end: To = None,
    limit: Limit = DEFAULT_LIST_LIMIT,
) -> None:
    """Who changed what, the newest first.

    For administrators.
    """
    now = session.clock()
    of = None if job is None else job_id_of(session.client, job)
    found = first(
        session,
        limit,
        lambda most: session.client.audit.list(
            job_id=of,
            caller=caller,
            action=action,
            from_=None if start is None else moment_of("--from", start, now),
            to=None if end is None else moment_of("--to", end, now),
            limit=most,
        ),
    )
    answers.many(session, found, lambda entries: _table(session, entries))


def _table(session: Session, entries: "list[AuditEntry]") -> None:
    screen = session.screen
    if not entries:
        screen.line("No entries.")
        return
    columns = [
        Column("WHEN"),
        Column("CALLER", least=8),
        Column("ACTION"),
        Column("WHAT", least=12),
    ]
    screen.table(
        columns,
        [[entry.at, entry.caller, entry.action, _what(entry)] for entry in entries],
    )


def _what(entry: "AuditEntry") -> str:
    """Return the target of an entry, by name if known, and the fields that changed."""
    named = (entry.after or entry.before or {}).get("name")
    known = entry.run_id or entry.job_id or entry.subject_token_id or ""
    times = f" ×{entry.count:,}" if entry.count > 1 else ""
    fields = ", ".join(_changed(entry))
    if fields and entry.action == "job.update" and not named:
        # The fields come first, because a narrow terminal cuts off the end of a line.
        return f"{fields} ({known}){times}"
    return f"{named or known}{times}{fields and f': {fields}'}"


def _changed(entry: "AuditEntry") -> list[str]:
    before, after = entry.before, entry.after
    if before is None or after is None:
        return []
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
