"""Render runs for people."""

from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.input.choices import RunTime
from punctual_cli.output.columns import Column
from punctual_cli.output.terminal_text import escape_controls
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run


def print_table(session: Session, runs: "list[Run]", time_kind: RunTime, shows_jobs: bool) -> None:
    """Print a table of runs, with the names of their jobs if `shows_jobs`."""
    screen = session.screen
    if not runs:
        screen.print_line("No runs.")
        return
    time_column = Column(time_kind.name, min_width=9)
    columns = (Column("RUN"), Column("STATUS"), time_column, Column("TOOK", align_right=True))
    rows = [_row(session, run, time_kind) for run in runs]
    if not shows_jobs:
        screen.print_table(columns, rows)
    else:
        with_jobs = [
            [run.job_name or run.job_id, *row] for run, row in zip(runs, rows, strict=True)
        ]
        screen.print_table((Column("JOB", min_width=10), *columns), with_jobs)


def _row(session: Session, run: "Run", time_kind: RunTime) -> list[Any]:
    screen = session.screen
    at = {
        RunTime.SCHEDULED: run.scheduled_time,
        RunTime.STARTED: run.start_time,
        RunTime.ENDED: run.end_time,
    }[time_kind]
    relative_time = None if at is None else screen.relative_time(at)
    return [
        run.run_id,
        screen.status(run.status, run.count),
        relative_time,
        duration_text(session, run),
    ]


def duration_text(session: Session, run: "Run") -> str | None:
    if run.start_time is None:
        return None
    return moments.format_duration((run.end_time or session.clock()) - run.start_time)


def print_card(session: Session, run: "Run") -> None:
    screen = session.screen
    lateness = None if run.lateness_ms is None else f"{run.lateness_ms:,.1f} ms"
    http_status = None if run.http_status is None else str(run.http_status)
    rows: list[tuple[str, Any]] = [
        ("Run", run.run_id),
        ("Job", f"{run.job_name or ''} {run.job_id} (version {run.job_version})".strip()),
        ("Task", run.task_type),
        ("Status", screen.status(run.status, run.count)),
        ("Reason", reason_text(run)),
        ("Trigger", _trigger_text(run)),
        ("Scheduled", screen.long_time(run.scheduled_time)),
        ("Due", screen.long_time(run.due_time)),
        ("Queued", screen.long_time(run.queued_at)),
        ("Claimed", screen.long_time(run.claimed_at)),
        ("Started", screen.long_time(run.start_time)),
        ("Lateness", lateness),
        ("Ended", screen.long_time(run.end_time)),
        ("Took", duration_text(session, run)),
        ("Progress", _progress_text(run)),
        ("Next attempt", screen.long_time(run.next_attempt_time)),
        ("Exit code", None if run.exit_code is None else str(run.exit_code)),
        ("HTTP status", http_status),
        ("Error", run.error_message),
        ("Payload", _payload_text(run)),
        ("Output", "discarded (the job's output is discard)" if run.output_discarded else None),
        ("Logs", "truncated; see punctual runs logs" if run.log_truncated else None),
    ]
    screen.print_pairs(rows)
    if len(run.attempts) > 1:
        screen.print_line()
        columns = (
            Column("ATTEMPT", align_right=True),
            Column("STATUS"),
            Column("STARTED"),
            Column("TOOK"),
        )
        screen.print_table(
            (*columns, Column("ERROR", min_width=12)),
            [_attempt_row(session, attempt) for attempt in run.attempts],
        )


def _attempt_row(session: Session, attempt: Any) -> list[Any]:
    error_lines = (attempt.error_message or "").strip().splitlines()
    return [
        attempt.attempt_number,
        session.screen.status(attempt.status),
        session.screen.relative_time(attempt.start_time),
        duration_text(session, attempt),
        error_lines[-1] if error_lines else None,
    ]


def _trigger_text(run: "Run") -> str:
    origin = f" of {run.retried_from}" if run.retried_from else ""
    return f"{run.trigger}{origin}"


def _progress_text(run: "Run") -> str | None:
    if run.progress is None:
        return None
    percent = "" if run.progress.percent is None else f"{run.progress.percent:g} %"
    return ", ".join(part for part in (percent, run.progress.text) if part)


def _payload_text(run: "Run") -> str | None:
    if "payload" not in run.raw:
        return None
    from punctual_cli.apply import yaml_lines

    return yaml_lines.dump_yaml(run.payload).removesuffix("...\n").rstrip()


def reason_text(run: "Run") -> str | None:
    if run.reason is None:
        return None
    return f"{run.reason.text} ({run.reason.code})" if run.reason.text else run.reason.code


def state_line(session: Session, run: "Run") -> str:
    """Return the state of a run in one line."""
    parts = [run.status]
    if run.reason is not None:
        parts.append(f"({run.reason.code})")
    if (run.attempt_number or 1) > 1:
        parts.append(f"attempt {run.attempt_number}")
        if run.next_attempt_time is not None and not run.ended:
            parts.append(moments.format_relative(run.next_attempt_time, session.clock()))
    if run.ended and run.start_time is not None:
        parts.append(f"after {duration_text(session, run)}")
    return escape_controls(" ".join(parts))
