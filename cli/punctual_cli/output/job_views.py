"""Render jobs for people."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.output import schedule_text
from punctual_cli.output.columns import Column
from punctual_cli.output.screen import STATUS_STYLES
from punctual_cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from punctual.client import Job, JobVersion, Pause

WIDE_TABLE_COLUMNS = 118
MAX_SHOWN_OUTCOMES = 10
_NARROW_TABLE_OUTCOMES = 6
# Each outcome is one character, so that a strip is readable without colours too.
_OUTCOME_MARKS = {
    "SUCCESS": "✓",
    "FAILED": "✗",
    "TIMED_OUT": "T",
    "CANCELLED": "C",
    "SKIPPED": "·",
    "MISSED": "!",
}
_LIST_COLUMNS = (
    Column("NAME", min_width=12),
    Column("SCHEDULE", min_width=11),
    Column("STATUS"),
    Column("NEXT"),
    Column("LAST"),
)


def print_table(session: Session, jobs: "list[Job]") -> None:
    screen = session.screen
    if not jobs:
        screen.print_line("No jobs.")
        return
    is_wide = screen.out.width >= WIDE_TABLE_COLUMNS
    columns = (Column("ID"), *_LIST_COLUMNS) if is_wide else _LIST_COLUMNS
    rows = [_row(session, job, is_wide) for job in jobs]
    if any(job.recent for job in jobs):
        max_outcomes = MAX_SHOWN_OUTCOMES if is_wide else _NARROW_TABLE_OUTCOMES
        columns = (*columns, Column("RECENT"))
        rows = [
            [*row, _recent_strip(job, max_outcomes)] for row, job in zip(rows, jobs, strict=True)
        ]
    screen.print_table(columns, rows)


def _row(session: Session, job: "Job", is_wide: bool) -> list[Any]:
    screen = session.screen
    last_status = None if job.latest_run is None else screen.status(job.latest_run.status)
    cells = [
        job.name,
        schedule_text.short_schedule(job),
        screen.status(job.status),
        job.next_run_time,
        last_status,
    ]
    return [job.job_id, *cells] if is_wide else cells


def print_versions(session: Session, versions: "list[JobVersion]") -> None:
    """Print the versions with the fields that each changed. `punctual jobs show` has the values."""
    columns = (Column("VERSION"), Column("AT"), Column("BY"), Column("CHANGED", min_width=10))
    rows = [
        [
            version.version,
            version.at,
            version.by or None,
            ", ".join(version.changed) or ("created" if version.version == 1 else None),
        ]
        for version in versions
    ]
    session.screen.print_table(columns, rows)


def _recent_strip(job: "Job", max_outcomes: int) -> "Text":
    """Return a mark for each of the last outcomes, the newest on the right."""
    from rich.text import Text

    strip = Text()
    for run in reversed(job.recent[:max_outcomes]):
        strip.append(_OUTCOME_MARKS.get(run.status, "?"), STATUS_STYLES.get(run.status, ""))
    return strip


def print_card(session: Session, job: "Job") -> None:
    """Print a job's fields that differ from their defaults."""
    from punctual_cli.apply import fields

    screen = session.screen
    declared = fields.declared_fields(job.raw)
    latest_run = job.latest_run
    rows: list[tuple[str, Any]] = [
        ("Name", job.name),
        ("Id", job.job_id),
        ("Status", screen.status(job.status)),
        ("Paused", None if job.pause is None else _pause_text(session, job.pause)),
        ("Schedule", schedule_text.full_schedule(job)),
        ("Next run", screen.long_time(job.next_run_time)),
        ("Usual time", _usual_duration_text(job)),
        ("Latest run", None if latest_run is None else _latest_run_text(session, latest_run)),
    ]
    shown_fields = {"name", "schedule_type", "schedule_time", "cron_expression", "interval_seconds"}
    for name, value in declared.items():
        if name not in shown_fields:
            rows.append((_field_label(name), _value_text(value)))
    rows.append(("Created", _time_with_caller(screen.long_time(job.created_at), job.created_by)))
    if job.updated_at != job.created_at:
        rows.append(("Changed", _time_with_caller(screen.long_time(job.updated_at), None)))
    rows.append(("Version", str(job.version)))
    screen.print_pairs(rows)


def _latest_run_text(session: Session, run: Any) -> str:
    at = run.end_time or run.start_time or run.created_at
    relative_time = "" if at is None else f", {moments.format_relative(at, session.clock())}"
    return f"{run.status}{relative_time}: {run.run_id}"


def _usual_duration_text(job: "Job") -> str | None:
    if job.usual_duration_ms is None:
        return None
    return moments.format_duration(timedelta(milliseconds=job.usual_duration_ms))


def _pause_text(session: Session, pause: "Pause") -> str:
    """Return when and by which caller a job was paused, its note, and when it resumes."""
    screen = session.screen
    lines = [_time_with_caller(screen.long_time(pause.at), pause.by), pause.note]
    if pause.until is not None:
        lines.append(f"until {screen.long_time(pause.until)}")
    return "\n".join(line for line in lines if line)


def _time_with_caller(time_text: str | None, caller: str | None) -> str | None:
    return time_text if time_text is None or not caller else f"{time_text} by {caller}"


def _field_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _value_text(value: Any) -> str:
    from punctual_cli.apply import yaml_lines

    if isinstance(value, dict | list):
        return yaml_lines.dump_yaml(value).rstrip()
    return str(value)
