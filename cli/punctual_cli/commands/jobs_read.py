"""The commands punctual jobs list, show and explain."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.input import moments
from punctual_cli.input.choices import JobStatus, ScheduleType
from punctual_cli.input.job_flags import moment_of, read, zone_of
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, Quiet, first, word, words
from punctual_cli.input.references import JobName, job_of
from punctual_cli.input.text_fields import tags
from punctual_cli.output import answers, job_views
from punctual_cli.session import Session

if TYPE_CHECKING:
    from datetime import tzinfo

    from punctual.client import Explanation


def list_jobs(
    session: Session,
    status: Annotated[
        list[JobStatus] | None,
        typer.Option(help="One of these; repeatable.", case_sensitive=False, show_default=False),
    ] = None,
    kind: Annotated[
        ScheduleType | None,
        typer.Option("--type", help="Of this schedule.", case_sensitive=False, show_default=False),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Names that begin so.", show_default=False)
    ] = None,
    created_by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Made by this caller.", show_default=False)
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="With this tag; repeatable.", show_default=False),
    ] = None,
    limit: Limit = DEFAULT_LIST_LIMIT,
    quiet: Quiet = False,
) -> None:
    """The jobs, the newest first."""
    found = first(
        session,
        limit,
        lambda most: session.client.jobs.list(
            status=words(status),
            schedule_type=word(kind),
            name_prefix=prefix,
            created_by=created_by,
            tags=tags(tag or ()),
            limit=most,
        ),
    )
    if quiet:
        answers.ids(session, [job.job_id for job in found])
    else:
        answers.many(session, found, lambda jobs: job_views.table(session, jobs))


def show(session: Session, job: JobName) -> None:
    """A job: what it does, when it ran and runs next."""
    answers.one(session, job_of(session.client, job), lambda one: job_views.card(session, one))


def _moment(session: Session, text: str, zone: "tzinfo | None") -> datetime | str:
    """Return a time for the server.

    A local time stays local, because the server handles DST gaps.
    """
    if zone is None:
        return moment_of("--at", text, session.clock())
    at = read("--at", lambda: moments.local_or_utc(text, session.clock(), zone))
    return at if at.tzinfo else at.isoformat()


def explain(
    session: Session,
    job: JobName,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Such as 'yesterday', 09:30 or +2d, in the job's time zone; else the last due "
            "time.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Why it ran at a time, or did not, or whether it will."""
    of = job_of(session.client, job)
    screen, zone = session.screen, zone_of(of.timezone)
    found = session.client.jobs.explain(of, None if at is None else _moment(session, at, zone))

    def draw(found: "Explanation") -> None:
        screen.pairs(
            [
                ("At", screen.long(found.at, zone)),
                ("Outcome", screen.status(found.outcome)),
                ("Because", found.reason),
                ("Run", found.run_id),
                ("Before", screen.long(found.previous, zone)),
                ("After", screen.long(found.next, zone)),
            ]
        )

    answers.one(session, found, draw)
