"""The commands punctual jobs pause, resume, cancel, run and backfill."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import Code, Trouble
from punctual_cli.input import text_fields
from punctual_cli.input.choices import Missed
from punctual_cli.input.job_flags import moment_of
from punctual_cli.input.options import Key, Yes, word
from punctual_cli.input.prompting import confirmed
from punctual_cli.input.references import JobName, job_id_of
from punctual_cli.output import answers, progress, watch
from punctual_cli.output.watch import Wait, WaitTimeout, patience
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Backfill, Job

MAX_SHOWN_TIMES = 10
ASK_FROM = 2  # runs


def pause(session: Session, job: JobName) -> None:
    """Hold its schedule.

    What runs goes on, and punctual jobs run still runs it.
    """
    _answer(session, session.client.jobs.pause(job_id_of(session.client, job)))


def resume(
    session: Session,
    job: JobName,
    missed: Annotated[
        Missed | None,
        typer.Option(
            help="What becomes of what the pause held off; by default the job's misfire_policy.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Go on with its schedule."""
    found = session.client.jobs.resume(job_id_of(session.client, job), missed=word(missed))
    _answer(session, found)


def cancel(session: Session, job: JobName) -> None:
    """End it for good.

    Nothing starts any more, and what runs is stopped.
    """
    _answer(session, session.client.jobs.cancel(job_id_of(session.client, job)))


def run(
    session: Session,
    job: JobName,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="In place of the job's own; or @FILE.", show_default=False
        ),
    ] = None,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    key: Key = None,
) -> None:
    """Run it now, once.

    Its schedule stays as it is.
    """
    until = patience(wait, timeout)
    given: dict[str, Any] = {} if payload is None else {"payload": text_fields.payload(payload)}
    job_id = job_id_of(session.client, job)
    found = session.client.jobs.run(job_id, idempotency_key=key, **given)
    watch.answer(session, found, wait, until)


def backfill(
    session: Session,
    job: JobName,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="From then on.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Until before then.")] = "now",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run.")] = False,
    yes: Yes = False,
) -> None:
    """Run what should have run and did not.

    It shows the times, and asks before it orders more than one run.
    """
    now = session.clock()
    times = moment_of("--from", start, now), moment_of("--to", end, now)
    job_id = job_id_of(session.client, job)
    with progress.spinner(session, "Looking at what ran"):
        found = session.client.jobs.backfill(job_id, *times, dry_run=True)
    if dry_run:
        _told(session, found, dry_run)
        return
    if not session.as_json:
        _draw(session, found)
    if found.runs >= ASK_FROM and not confirmed(session, f"Order {found.runs} runs?", yes):
        raise Trouble("Nothing was ordered.", Code.REFUSED)
    if found.runs:
        with progress.spinner(session, f"Ordering {found.runs} runs"):
            found = session.client.jobs.backfill(job_id, *times)
    _told(session, found, dry_run)


def _told(session: Session, found: "Backfill", dry_run: bool) -> None:
    if session.as_json:
        shown: dict[str, Any] = {"runs": found.runs, "dry_run": dry_run}
        if dry_run:
            shown["times"] = list(found.times)
        answers.as_json(shown)
    elif dry_run:
        _draw(session, found)
    else:
        session.screen.line(f"{_runs(found.runs)} ordered.", "green" if found.runs else None)


def _draw(session: Session, found: "Backfill") -> None:
    screen = session.screen
    if not found.runs:
        screen.line("Nothing in that range is left to run.")
        return
    screen.line(f"{_runs(found.runs)} did not happen:")
    for at in found.times[:MAX_SHOWN_TIMES]:
        screen.line(f"  {screen.long(at)}")
    if found.runs > MAX_SHOWN_TIMES:
        screen.line(f"  and {found.runs - MAX_SHOWN_TIMES:,} more")


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def _answer(session: Session, job: "Job") -> None:
    def draw(one: "Job") -> None:
        screen = session.screen
        coming = one.next_run_time
        following_run = "" if coming is None else f"; next run {screen.long(coming)}"
        screen.line(screen.status(one.status) + f"  {one.name}{following_run}")

    answers.one(session, job, draw)
