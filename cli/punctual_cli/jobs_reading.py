"""punctual jobs: list, show, explain."""

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli import answers, job_views
from punctual_cli.choices import JobStatus, ScheduleType
from punctual_cli.job_flags import moment_of
from punctual_cli.options import MANY, Limit, Quiet, first, word, words
from punctual_cli.references import JobName, job_id_of, job_of
from punctual_cli.session import Session
from punctual_cli.text_fields import tags

if TYPE_CHECKING:
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
    limit: Limit = MANY,
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


def explain(
    session: Session,
    job: JobName,
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="Such as 'yesterday', 09:30 or +2d.")
    ] = "now",
) -> None:
    """Why it ran at a time, or did not, or whether it will."""
    moment = moment_of("--at", at, session.clock())
    found = session.client.jobs.explain(job_id_of(session.client, job), moment)
    screen = session.screen

    def draw(found: "Explanation") -> None:
        screen.pairs(
            [
                ("At", screen.long(found.at)),
                ("Outcome", screen.status(found.outcome)),
                ("Because", found.reason),
                ("Run", found.run_id),
                ("Before", screen.long(found.previous)),
                ("After", screen.long(found.next)),
            ]
        )

    answers.one(session, found, draw)
