"""Render jobs for people."""

from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.output import schedule_text
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Job

WIDE_TABLE_COLUMNS = 118
_LIST = (
    Column("NAME", least=12),
    Column("SCHEDULE", least=11),
    Column("STATUS"),
    Column("NEXT"),
    Column("LAST"),
)


def table(session: Session, jobs: "list[Job]") -> None:
    screen = session.screen
    if not jobs:
        screen.line("No jobs.")
        return
    wide = screen.out.width >= WIDE_TABLE_COLUMNS
    columns = (Column("ID"), *_LIST) if wide else _LIST
    screen.table(columns, [_row(session, job, wide) for job in jobs])


def _row(session: Session, job: "Job", wide: bool) -> list[Any]:
    screen = session.screen
    last = None if job.latest_run is None else screen.status(job.latest_run.status)
    cells = [
        job.name,
        schedule_text.briefly(job),
        screen.status(job.status),
        job.next_run_time,
        last,
    ]
    return [job.job_id, *cells] if wide else cells


def card(session: Session, job: "Job") -> None:
    """Print a job's fields that differ from their defaults."""
    from punctual_cli.apply import fields

    screen = session.screen
    said = fields.declared_of(job.raw)
    latest = job.latest_run
    rows: list[tuple[str, Any]] = [
        ("Name", job.name),
        ("Id", job.job_id),
        ("Status", screen.status(job.status)),
        ("Schedule", schedule_text.fully(job)),
        ("Next run", screen.long(job.next_run_time)),
        ("Latest run", None if latest is None else _latest(session, latest)),
    ]
    told = {"name", "schedule_type", "schedule_time", "cron_expression", "interval_seconds"}
    for name, value in said.items():
        if name not in told:
            rows.append((_label(name), _value(value)))
    rows.append(("Created", _by(screen.long(job.created_at), job.created_by)))
    if job.updated_at != job.created_at:
        rows.append(("Changed", _by(screen.long(job.updated_at), None)))
    rows.append(("Version", str(job.version)))
    screen.pairs(rows)


def _latest(session: Session, run: Any) -> str:
    at = run.end_time or run.start_time or run.created_at
    when = "" if at is None else f", {moments.hint(at, session.clock())}"
    return f"{run.status}{when}: {run.run_id}"


def _by(at: str | None, who: str | None) -> str | None:
    return at if at is None or not who else f"{at} by {who}"


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _value(value: Any) -> str:
    from punctual_cli.apply import yaml_lines

    if isinstance(value, dict | list):
        return yaml_lines.written(value).rstrip()
    return str(value)
