"""Follow runs until they end, and show each change."""

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import moments
from punctual_cli.input.job_flags import parse_option
from punctual_cli.output import answers, progress, run_views
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run

Wait = Annotated[
    bool,
    typer.Option(
        "--wait", "-w", help="Wait until the run has ended. Exit code 1 if it did not succeed."
    ),
]
WaitTimeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        help="Maximum wait, such as 90 (seconds), 30s or 5m. Exit code 7 when it is over.",
        show_default=False,
    ),
]


def max_wait_option(wait: bool, timeout: str | None) -> timedelta | None:
    if timeout is None:
        return None
    if not wait:
        raise CommandError("--timeout requires --wait.")
    return parse_option("--timeout", lambda: moments.parse_duration(timeout))


def show_started_run(session: Session, run: "Run", wait: bool, max_wait: timedelta | None) -> None:
    """Show a run as it is, or as it ended, and set the exit code."""
    if not session.as_json:
        session.screen.print_line(f"Run {run.run_id}")
    if wait:
        run = follow_run(session, run, max_wait, as_stream=False)
    if session.as_json:
        answers.write_json(run.raw)
    elif not wait:
        session.screen.print_line(run_views.state_line(session, run))
    if wait:
        exit_with_outcome(session, run)


def follow_run(session: Session, run: "Run", max_wait: timedelta | None, as_stream: bool) -> "Run":
    """Follow a run to its end and return it.

    `as_stream` prints each state as a line with --json.
    """
    from punctual.client import WaitTimeout

    try:
        with progress.spinner(session, run_views.state_line(session, run)) as draw:
            _print_state(session, run, as_stream)
            draw(partial(_progress_line, session, run))
            for state in session.client.runs.watch(run, timeout=max_wait):
                is_new = _shown_state(state) != _shown_state(run)
                run = state
                if is_new:
                    _print_state(session, run, as_stream)
                if not run.ended:
                    draw(partial(_progress_line, session, run))
    except WaitTimeout as error:
        raise CommandError(
            f"The run is {error.run.status} after "
            f"{moments.format_distance(max_wait or timedelta())}.",
            ExitCode.TIMED_OUT,
            f"The run continues. Follow it with: punctual runs watch {run.job_id} {run.run_id}",
        ) from error
    except KeyboardInterrupt:
        session.screen.print_note(
            f"The run continues. Follow it with: punctual runs watch {run.job_id} {run.run_id}\n"
            f"Cancel it with: punctual runs cancel {run.job_id} {run.run_id}"
        )
        raise
    return run


def _print_state(session: Session, run: "Run", as_stream: bool) -> None:
    if session.as_json:
        if as_stream:
            answers.write_json_line(run.raw)
        return
    screen = session.screen
    local_now = session.clock().astimezone()
    text = run_views.state_line(session, run)
    details = text.removeprefix(run.status)
    screen.print_above(screen.cell(f"{local_now:%H:%M:%S}  ") + screen.status(run.status) + details)


def _shown_state(run: "Run") -> tuple[object, ...]:
    return run.status, run.attempt_number, run.reason and run.reason.code


def _progress_line(session: Session, run: "Run") -> str:
    line = run_views.state_line(session, run)
    return (
        f"{line}, for {run_views.duration_text(session, run)}" if run.status == "RUNNING" else line
    )


def exit_with_outcome(session: Session, run: "Run", logs_shown: bool = False) -> None:
    """End the command with an error if the run did not succeed.

    After the logs only the first line of the error is shown, because a script's logs repeat the
    rest.
    """
    if run.succeeded:
        return
    if not session.as_json:
        explanation = run.error_message or run_views.reason_text(run) or ""
        explanation = explanation.partition("\n")[0] if logs_shown else explanation
        explanation = "" if explanation.upper() == run.status else explanation
        session.screen.print_note(
            f"The run is {run.status}{': ' if explanation else '.'}{explanation}", "red"
        )
    raise typer.Exit(ExitCode.FAILED)
