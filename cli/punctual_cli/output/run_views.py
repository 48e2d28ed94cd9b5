"""Render runs for people."""

from typing import TYPE_CHECKING, Any

from punctual_cli.input import moments
from punctual_cli.input.choices import RunTime
from punctual_cli.output.columns import Column
from punctual_cli.output.terminal_text import plain
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run


def table(session: Session, runs: "list[Run]", by: RunTime, names: dict[str, str] | None) -> None:
    """Print a table of runs. `names` maps job ids to names if the runs belong to several jobs."""
    screen = session.screen
    if not runs:
        screen.line("No runs.")
        return
    when = Column(by.name, least=9)
    columns = (Column("RUN"), Column("STATUS"), when, Column("TOOK", right=True))
    rows = [_row(session, run, by) for run in runs]
    if names is None:
        screen.table(columns, rows)
    else:
        jobs = [names.get(run.job_id, run.job_id) for run in runs]
        with_jobs = [[job, *row] for job, row in zip(jobs, rows, strict=True)]
        screen.table((Column("JOB", least=10), *columns), with_jobs)


def _row(session: Session, run: "Run", by: RunTime) -> list[Any]:
    screen = session.screen
    at = {
        RunTime.SCHEDULED: run.scheduled_time,
        RunTime.STARTED: run.start_time,
        RunTime.ENDED: run.end_time,
    }[by]
    when = None if at is None else screen.ago(at)
    return [run.run_id, screen.status(run.status, run.count), when, took(session, run)]


def took(session: Session, run: "Run") -> str | None:
    if run.start_time is None:
        return None
    return moments.lasted((run.end_time or session.clock()) - run.start_time)


def card(session: Session, run: "Run") -> None:
    screen = session.screen
    late = None if run.lateness_ms is None else f"{run.lateness_ms:,.1f} ms"
    http = None if run.http_status is None else str(run.http_status)
    rows: list[tuple[str, Any]] = [
        ("Run", run.run_id),
        ("Job", f"{run.job_id} (version {run.job_version})"),
        ("Status", screen.status(run.status, run.count)),
        ("Because", reason(run)),
        ("Trigger", _trigger(run)),
        ("Scheduled", screen.long(run.scheduled_time)),
        ("Due", screen.long(run.due_time)),
        ("Started", screen.long(run.start_time)),
        ("Late by", late),
        ("Ended", screen.long(run.end_time)),
        ("Took", took(session, run)),
        ("Next attempt", screen.long(run.next_attempt_time)),
        ("Exit code", None if run.exit_code is None else str(run.exit_code)),
        ("HTTP status", http),
        ("Error", run.error_message),
        ("Payload", _payload(run)),
        ("Output", "discarded (the job's output is discard)" if run.output_discarded else None),
        ("Logs", "punctual runs logs, cut at their limit" if run.log_truncated else None),
    ]
    screen.pairs(rows)
    if len(run.attempts) > 1:
        screen.line()
        columns = Column("ATTEMPT", right=True), Column("STATUS"), Column("STARTED"), Column("TOOK")
        screen.table(
            (*columns, Column("ERROR", least=12)), [_attempt(session, a) for a in run.attempts]
        )


def _attempt(session: Session, attempt: Any) -> list[Any]:
    error = (attempt.error_message or "").strip().splitlines()
    return [
        attempt.attempt_number,
        session.screen.status(attempt.status),
        session.screen.ago(attempt.start_time),
        took(session, attempt),
        error[-1] if error else None,
    ]


def _trigger(run: "Run") -> str:
    of = f" of {run.retried_from}" if run.retried_from else ""
    return f"{run.trigger}{of}"


def _payload(run: "Run") -> str | None:
    if "payload" not in run.raw:
        return None
    from punctual_cli.apply import yaml_lines

    return yaml_lines.written(run.payload).removesuffix("...\n").rstrip()


def reason(run: "Run") -> str | None:
    if run.reason is None:
        return None
    return f"{run.reason.text} ({run.reason.code})" if run.reason.text else run.reason.code


def in_a_line(session: Session, run: "Run") -> str:
    """Return the state of a run in one line."""
    parts = [run.status]
    if run.reason is not None:
        parts.append(f"({run.reason.code})")
    if (run.attempt_number or 1) > 1:
        parts.append(f"attempt {run.attempt_number}")
        if run.next_attempt_time is not None and not run.ended:
            parts.append(moments.hint(run.next_attempt_time, session.clock()))
    if run.ended and run.start_time is not None:
        parts.append(f"after {took(session, run)}")
    return plain(" ".join(parts))
