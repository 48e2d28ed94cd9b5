"""The commands punctual jobs list, show and explain."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.input import moments
from punctual_cli.input.job_flags import find_zone, parse_option, parse_time_option
from punctual_cli.input.list_filters import JobListFilters
from punctual_cli.input.options import (
    DEFAULT_LIST_LIMIT,
    Limit,
    Quiet,
    fetch_up_to,
)
from punctual_cli.input.references import JobName
from punctual_cli.output import answers, job_views
from punctual_cli.session import Session

if TYPE_CHECKING:
    from datetime import tzinfo

    from punctual.client import Explanation


def list_jobs(
    session: Session,
    filters: JobListFilters,
    limit: Limit = DEFAULT_LIST_LIMIT,
    quiet: Quiet = False,
) -> None:
    """List jobs, newest first or in another order.

    RECENT shows the last outcomes, the newest on the right: ✓ success, ✗ failed, T timed out,
    C cancelled, · skipped, ! missed.
    """
    listed_jobs = fetch_up_to(
        session,
        limit,
        lambda max_items: session.client.jobs.list(
            **filters.query(),
            recent=None if quiet else job_views.MAX_SHOWN_OUTCOMES,
            limit=max_items,
        ),
    )
    if quiet:
        answers.write_ids(session, [job.job_id for job in listed_jobs])
    else:
        answers.write_items(session, listed_jobs, lambda jobs: job_views.print_table(session, jobs))


def show(session: Session, job: JobName) -> None:
    """Show one job with its schedule, latest run and next run."""
    answers.write_item(
        session,
        session.client.jobs.get(job),
        lambda shown_job: job_views.print_card(session, shown_job),
    )


def versions(session: Session, job: JobName, limit: Limit = DEFAULT_LIST_LIMIT) -> None:
    """List the versions of a job: the time and the author of each change, and what it changed."""
    listed = fetch_up_to(
        session,
        limit,
        lambda max_items: session.client.jobs.versions(job, limit=max_items),
    )
    answers.write_items(session, listed, lambda shown: job_views.print_versions(session, shown))


def _parse_explained_time(session: Session, text: str, zone: "tzinfo | None") -> datetime | str:
    """Return a time for the server.

    A local time stays local, because the server handles DST gaps.
    """
    if zone is None:
        return parse_time_option("--at", text, session.clock())
    at = parse_option("--at", lambda: moments.parse_local_or_utc(text, session.clock(), zone))
    return at if at.tzinfo else at.isoformat()


def explain(
    session: Session,
    job: JobName,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Time, such as 'yesterday', 09:30 or +2d, in the job's time zone. "
            "Default: the last due time.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain why a job ran, did not run or will run at a time."""
    found_job = session.client.jobs.get(job)
    screen, zone = session.screen, find_zone(found_job.timezone)
    explanation = session.client.jobs.explain(
        found_job, None if at is None else _parse_explained_time(session, at, zone)
    )

    def draw(shown_explanation: "Explanation") -> None:
        screen.print_pairs(
            [
                ("At", screen.long_time(shown_explanation.at, zone)),
                ("Outcome", screen.status(shown_explanation.outcome)),
                ("Reason", shown_explanation.reason),
                ("Run", shown_explanation.run_id),
                ("Before", screen.long_time(shown_explanation.previous, zone)),
                ("After", screen.long_time(shown_explanation.next, zone)),
            ]
        )

    answers.write_item(session, explanation, draw)
