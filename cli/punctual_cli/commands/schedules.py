"""The commands punctual preview and punctual upcoming."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.commands import cron_comparison
from punctual_cli.errors import Code, Told, show
from punctual_cli.input import moments
from punctual_cli.input.choices import CronReferee, Fold, Gap
from punctual_cli.input.job_flags import moment_of
from punctual_cli.input.options import Limit, first
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Upcoming

SOME = 20  # one screen


def preview(
    session: Session,
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="A cron expression, rate(…) or at(…), in quotes.")
    ],
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="Its time zone.")] = "UTC",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=100, metavar="N", help="How many times.")
    ] = 10,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The times after that one.")
    ] = "now",
    gap: Annotated[
        Gap | None,
        typer.Option(
            "--dst-gap",
            help="What a time does that the clocks skip.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    fold: Annotated[
        Fold | None,
        typer.Option(
            "--dst-fold",
            help="What a time does that comes twice.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        CronReferee | None,
        typer.Option(
            "--compare",
            help="Compare the times with those of this package. Exit code 1 if they differ.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the next times of a cron expression.

    It also shows what clock changes do to them. It needs no server.
    """
    from punctual.domain.schedules import schedule
    from punctual.domain.schedules.schedule import Cron

    after = moment_of("--from", start, session.clock())
    made = Cron(expression, timezone=tz, dst_gap=gap or "", dst_fold=fold or "", anchor_at=after)
    wrong = schedule.check(made)
    if wrong:
        told = Told(
            Code.REFUSED,
            f"{wrong[0].field}: {wrong[0].message}",
            errors=tuple((e.field, e.message) for e in wrong),
        )
        show(told, session.as_json)
        raise typer.Exit(Code.REFUSED)
    found = schedule.preview(made, after, count)
    comparison = None
    if compare:
        comparison = cron_comparison.compare(made, after, [utc for utc, _ in found.times])
    if session.as_json:
        answers.as_json(_as_json(found, comparison))
    else:
        _draw(session, found, tz)
        if comparison:
            cron_comparison.draw(session.screen, comparison, tz)
    if comparison and not comparison.agrees:
        raise typer.Exit(Code.FAILED)


def _as_json(found: Any, comparison: "cron_comparison.Comparison | None") -> dict[str, Any]:
    from punctual.domain.schedules.timezones import TZDATA_VERSION

    return {
        "times": [
            {"utc": moments.wire(utc), "local": local.isoformat(timespec="milliseconds")}
            for utc, local in found.times
        ],
        "description": found.description,
        "warnings": list(found.warnings),
        "tzdata": TZDATA_VERSION,
        **({"comparison": comparison.as_json()} if comparison else {}),
    }


def _draw(session: Session, found: Any, tz: str) -> None:
    screen, now = session.screen, session.clock()
    screen.line(found.description, "bold")
    screen.line()
    if not found.times:
        screen.line("It never fires after that.", "yellow")
    rows = [
        (f"{local:%a %Y-%m-%d %H:%M:%S}", f"{utc:%Y-%m-%d %H:%M:%S}", moments.hint(utc, now))
        for utc, local in found.times
    ]
    if tz == "UTC":
        screen.table([Column("UTC"), Column("")], [(local, hint) for local, _, hint in rows])
    else:
        screen.table([Column(tz, least=20), Column("UTC"), Column("")], rows)
    for warning in found.warnings:
        screen.line()
        screen.line(f"Clock change: {warning}", "yellow")


def upcoming(
    session: Session,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Not before.", show_default=True)
    ] = "now",
    within: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="So long ahead, to 31d.")
    ] = "1d",
    limit: Limit = SOME,
) -> None:
    """What runs next, over all jobs."""
    from punctual_cli.input.job_flags import read

    begin = moment_of("--from", start, session.clock())
    ahead: timedelta = read("--within", lambda: moments.duration(within))
    end = read("--within", lambda: begin + ahead)
    found = first(
        session,
        limit,
        lambda most: session.client.schedules.upcoming(from_=begin, to=end, limit=most),
    )
    answers.many(session, found, lambda times: _list(session, times, within))


def _list(session: Session, found: "list[Upcoming]", within: str) -> None:
    screen = session.screen
    if not found:
        screen.line(f"Nothing is due within {within}.")
        return
    screen.table([Column("WHEN"), Column("JOB", least=12)], [(one.utc, one.name) for one in found])
