"""Follow runs until they end, and show each change."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.errors import Code, Trouble
from punctual_cli.input import clock, moments
from punctual_cli.input.job_flags import read
from punctual_cli.output import answers, progress, run_views
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Run

MIN_POLL_SECONDS, MAX_POLL_SECONDS, POLL_GROWTH = 0.1, 2.0, 1.3

Wait = Annotated[
    bool, typer.Option("--wait", "-w", help="Until it has ended; exit code 1 if it failed.")
]
WaitTimeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        help="Wait no longer than 90, 30s or 5m: exit code 7.",
        show_default=False,
    ),
]


def patience(wait: bool, timeout: str | None) -> timedelta | None:
    if timeout is None:
        return None
    if not wait:
        raise Trouble("--timeout belongs to --wait.")
    return read("--timeout", lambda: moments.duration(timeout))


def answer(session: Session, run: "Run", wait: bool, patience: timedelta | None) -> None:
    """Show a run as it is, or as it ended, and set the exit code."""
    if not session.as_json:
        session.screen.line(f"Run {run.run_id}")
    if wait:
        run = follow(session, run, patience, as_stream=False)
    if session.as_json:
        answers.as_json(run.raw)
    elif not wait:
        session.screen.line(run_views.in_a_line(session, run))
    if wait:
        outcome(session, run)


def follow(session: Session, run: "Run", patience: timedelta | None, as_stream: bool) -> "Run":
    """Follow a run to its end and return it.

    `as_stream` prints each state as a line with --json.
    """
    try:
        with progress.spinner(session, run_views.in_a_line(session, run)) as draw:
            for state, is_new in _states(session, run, patience):
                run = state
                if is_new:
                    _tell(session, run, as_stream)
                if not run.ended:
                    draw(f"{run_views.in_a_line(session, run)}{_since(session, run)}")
    except KeyboardInterrupt:
        session.screen.note(
            f"The run goes on: punctual runs watch {run.job_id} {run.run_id}\n"
            f"To stop it: punctual runs cancel {run.job_id} {run.run_id}"
        )
        raise
    return run


def _states(
    session: Session, run: "Run", patience: timedelta | None
) -> Iterator[tuple["Run", bool]]:
    until = None if patience is None else clock.monotonic() + patience.total_seconds()
    delay, before = MIN_POLL_SECONDS, None
    while True:
        now = (run.status, run.attempt_number, run.reason and run.reason.code)
        yield run, now != before
        if run.ended:
            return
        before = now
        left = MAX_POLL_SECONDS if until is None else until - clock.monotonic()
        if left <= 0:
            raise Trouble(
                f"The run is {run.status} after {moments.far(patience or timedelta())}.",
                Code.TIMED_OUT,
                f"It goes on: punctual runs watch {run.job_id} {run.run_id}",
            )
        clock.wait(min(delay, left))
        delay = min(MAX_POLL_SECONDS, delay * POLL_GROWTH)
        run = session.client.runs.get(run)


def _tell(session: Session, run: "Run", as_stream: bool) -> None:
    if session.as_json:
        if as_stream:
            answers.as_line(run.raw)
        return
    screen = session.screen
    local = session.clock().astimezone()
    text = run_views.in_a_line(session, run)
    rest = text.removeprefix(run.status)
    screen.above(screen.cell(f"{local:%H:%M:%S}  ") + screen.status(run.status) + rest)


def _since(session: Session, run: "Run") -> str:
    return f", for {run_views.took(session, run)}" if run.status == "RUNNING" else ""


def outcome(session: Session, run: "Run", logs_shown: bool = False) -> None:
    """End the command with an error if the run did not succeed.

    After the logs only the first line of the error is shown, because a script's logs repeat the
    rest.
    """
    if run.succeeded:
        return
    if not session.as_json:
        why = run.error_message or run_views.reason(run) or ""
        why = why.partition("\n")[0] if logs_shown else why
        why = "" if why.upper() == run.status else why
        session.screen.note(f"The run is {run.status}{': ' if why else '.'}{why}", "red")
    raise typer.Exit(Code.FAILED)
