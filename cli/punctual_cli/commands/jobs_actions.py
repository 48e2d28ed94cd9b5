"""The commands punctual jobs pause, resume, cancel, run and backfill."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.commands.operations import act_on_many
from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import text_fields
from punctual_cli.input.bulk_filters import BulkOptions, JobFilters, single_job
from punctual_cli.input.choices import Missed
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.options import Key, Yes, option_value
from punctual_cli.input.prompting import confirm
from punctual_cli.input.references import JobName, OneOrManyJobs
from punctual_cli.output import answers, progress, watch
from punctual_cli.output.watch import Wait, WaitTimeout, max_wait_option
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Backfill, Job

MAX_SHOWN_TIMES = 10
MIN_CONFIRMED_RUNS = 2  # runs


def pause(
    session: Session,
    job: OneOrManyJobs = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time at which the job resumes by itself. Default: it stays paused.",
            show_default=False,
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="Why the job is paused, for people.", show_default=False)
    ] = None,
    *,
    filters: JobFilters,
    bulk: BulkOptions,
) -> None:
    """Pause a job, or many by filters.

    Active runs continue, and punctual jobs run still works. For a paused job the command replaces
    the time and the note.
    """
    until_at = None if until is None else parse_time_option("--until", until, session.clock())
    bulk_filter = filters.bulk_filter()
    one_job = single_job(job, bulk_filter, bulk)
    if one_job is None:
        act_on_many(session, "pause", bulk_filter, bulk, until=until_at, note=note)
        return
    _print_job(session, session.client.jobs.pause(one_job, until=until_at, note=note))


def resume(
    session: Session,
    job: OneOrManyJobs = None,
    missed: Annotated[
        Missed | None,
        typer.Option(
            help="Policy for occurrences during the pause. Default: the job's misfire_policy.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    paused_by: Annotated[
        str | None,
        typer.Option(
            metavar="OPERATION", help="All jobs that this operation paused.", show_default=False
        ),
    ] = None,
    *,
    filters: JobFilters,
    bulk: BulkOptions,
) -> None:
    """Resume a paused job, or many by filters."""
    bulk_filter = filters.bulk_filter(paused_by=paused_by)
    one_job = single_job(job, bulk_filter, bulk)
    if one_job is None:
        act_on_many(session, "resume", bulk_filter, bulk, missed=option_value(missed))
        return
    resumed_job = session.client.jobs.resume(one_job, missed=option_value(missed))
    _print_job(session, resumed_job)


def cancel(
    session: Session,
    job: OneOrManyJobs = None,
    *,
    filters: JobFilters,
    bulk: BulkOptions,
) -> None:
    """Cancel a job permanently, or many by filters.

    Active runs are stopped, and no further run starts.
    """
    bulk_filter = filters.bulk_filter()
    one_job = single_job(job, bulk_filter, bulk)
    if one_job is None:
        act_on_many(session, "cancel", bulk_filter, bulk)
        return
    _print_job(session, session.client.jobs.cancel(one_job))


def run(
    session: Session,
    job: OneOrManyJobs = None,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Payload of this run, or @FILE. Default: the job's payload.",
            show_default=False,
        ),
    ] = None,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    key: Key = None,
    *,
    filters: JobFilters,
    bulk: BulkOptions,
) -> None:
    """Run a job once, now, or many by filters.

    The schedule does not change.
    """
    max_wait = max_wait_option(wait, timeout)
    payload_fields = text_fields.payload_option(payload)
    bulk_filter = filters.bulk_filter()
    one_job = single_job(job, bulk_filter, bulk)
    if one_job is None:
        if wait:
            raise CommandError(
                "--wait needs one job.", advice="Follow many with `punctual runs list`."
            )
        act_on_many(session, "run_now", bulk_filter, bulk, idempotency_key=key, **payload_fields)
        return
    started_run = session.client.jobs.run(one_job, idempotency_key=key, **payload_fields)
    watch.show_started_run(session, started_run, wait, max_wait)


def backfill(
    session: Session,
    job: JobName,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Start of the range.")],
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="End of the range, exclusive.")
    ] = "now",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs without starting them.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Run the missed occurrences of a time range.

    The command shows the times, and asks for confirmation if there is more than one run.
    """
    now = session.clock()
    times = parse_time_option("--from", start, now), parse_time_option("--to", end, now)
    job_id = session.client.jobs.id_of(job)
    with progress.spinner(session, "Reading the runs"):
        result = session.client.jobs.backfill(job_id, *times, dry_run=True)
    if dry_run:
        _print_backfill(session, result, dry_run)
        return
    if not session.as_json:
        _print_missing_runs(session, result)
    if result.runs >= MIN_CONFIRMED_RUNS and not confirm(
        session, f"Start {result.runs} runs?", yes
    ):
        raise CommandError("No run was started.", ExitCode.REFUSED)
    if result.runs:
        with progress.spinner(session, f"Starting {result.runs} runs"):
            result = session.client.jobs.backfill(job_id, *times)
    _print_backfill(session, result, dry_run)


def _print_backfill(session: Session, result: "Backfill", dry_run: bool) -> None:
    if session.as_json:
        output: dict[str, Any] = {"runs": result.runs, "dry_run": dry_run}
        if dry_run:
            output["times"] = list(result.times)
        answers.write_json(output)
    elif dry_run:
        _print_missing_runs(session, result)
    else:
        session.screen.print_line(
            f"{_count_text(result.runs)} started.", "green" if result.runs else None
        )


def _print_missing_runs(session: Session, result: "Backfill") -> None:
    screen = session.screen
    if not result.runs:
        screen.print_line("The range has no missed occurrence.")
        return
    screen.print_line(f"{_count_text(result.runs)} to start:")
    for at in result.times[:MAX_SHOWN_TIMES]:
        screen.print_line(f"  {screen.long_time(at)}")
    if result.runs > MAX_SHOWN_TIMES:
        screen.print_line(f"  and {result.runs - MAX_SHOWN_TIMES:,} more")


def _count_text(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def _print_job(session: Session, job: "Job") -> None:
    def draw(shown_job: "Job") -> None:
        screen = session.screen
        next_run_at = shown_job.next_run_time
        next_run_text = "" if next_run_at is None else f"; next run {screen.long_time(next_run_at)}"
        resume_at = None if shown_job.pause is None else shown_job.pause.until
        resume_text = "" if resume_at is None else f"; resumes {screen.long_time(resume_at)}"
        line = screen.status(shown_job.status) + f"  {shown_job.name}{next_run_text}{resume_text}"
        screen.print_line(line)

    answers.write_item(session, job, draw)
