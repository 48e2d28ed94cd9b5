"""The commands punctual preview and punctual upcoming."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.commands import cron_comparison
from punctual_cli.errors import ExitCode, Failure, print_failure
from punctual_cli.input import moments
from punctual_cli.input.choices import CronReferee, Fold, Gap
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.options import Limit, fetch_up_to
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Upcoming
    from punctual.domain.schedules.schedule import Cron

DEFAULT_UPCOMING_LIMIT = 20  # one screen


GapRule = Annotated[
    Gap | None,
    typer.Option(
        "--dst-gap",
        help="Rule for a local time that a clock change skips.",
        case_sensitive=False,
        show_default=False,
    ),
]
FoldRule = Annotated[
    Fold | None,
    typer.Option(
        "--dst-fold",
        help="Rule for a local time that a clock change repeats.",
        case_sensitive=False,
        show_default=False,
    ),
]
Referee = Annotated[
    CronReferee | None,
    typer.Option(
        "--compare",
        help="Compare the times with those of this package. Exit code 1 if they differ.",
        case_sensitive=False,
        show_default=False,
    ),
]


def preview(
    session: Session,
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="Cron expression, rate(…) or at(…), in quotes.")
    ],
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Time zone of the expression.")
    ] = "UTC",
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, max=100, metavar="N", help="Number of times to show."),
    ] = 10,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Show the times after this time.")
    ] = "now",
    gap: GapRule = None,
    fold: FoldRule = None,
    compare: Referee = None,
) -> None:
    """Show the next times of a cron expression.

    The command also shows the effect of clock changes. It needs no server.
    """
    from punctual.domain.schedules import schedule
    from punctual.domain.schedules.schedule import Cron

    after_at = parse_time_option("--from", start, session.clock())
    cron = Cron(expression, timezone=tz, dst_gap=gap or "", dst_fold=fold or "", anchor_at=after_at)
    _refuse_if_wrong(session, cron)
    result = schedule.preview(cron, after_at, count)
    comparison = None
    if compare:
        comparison = cron_comparison.compare_times(cron, after_at, [utc for utc, _ in result.times])
    if session.as_json:
        answers.write_json(_preview_as_json(result, comparison))
    else:
        _print_preview(session, result, tz)
        if comparison:
            cron_comparison.print_comparison(session.screen, comparison, tz)
    if comparison and not comparison.agrees:
        raise typer.Exit(ExitCode.FAILED)


def _refuse_if_wrong(session: Session, cron: "Cron") -> None:
    """End the command with the exit code for refused input if the expression has errors."""
    from punctual.domain.schedules.schedule import find_schedule_errors

    problems = find_schedule_errors(cron)
    if problems:
        failure = Failure(
            ExitCode.REFUSED,
            f"{problems[0].field}: {problems[0].message}",
            errors=tuple((problem.field, problem.message) for problem in problems),
        )
        print_failure(failure, session.as_json)
        raise typer.Exit(ExitCode.REFUSED)


def _preview_as_json(
    result: Any, comparison: "cron_comparison.Comparison | None"
) -> dict[str, Any]:
    from punctual.domain.schedules.timezones import TZDATA_VERSION

    return {
        "times": [
            {"utc": moments.format_rfc3339(utc), "local": local.isoformat(timespec="milliseconds")}
            for utc, local in result.times
        ],
        "description": result.description,
        "warnings": list(result.warnings),
        "tzdata": TZDATA_VERSION,
        **({"comparison": comparison.as_json()} if comparison else {}),
    }


def _print_preview(session: Session, result: Any, tz: str) -> None:
    screen, now = session.screen, session.clock()
    screen.print_line(result.description, "bold")
    screen.print_line()
    if not result.times:
        screen.print_line("The expression has no further time.", "yellow")
    rows = [
        (
            f"{local:%a %Y-%m-%d %H:%M:%S}",
            f"{utc:%Y-%m-%d %H:%M:%S}",
            moments.format_relative(utc, now),
        )
        for utc, local in result.times
    ]
    if tz == "UTC":
        screen.print_table([Column("UTC"), Column("")], [(local, hint) for local, _, hint in rows])
    else:
        screen.print_table([Column(tz, min_width=20), Column("UTC"), Column("")], rows)
    for warning in result.warnings:
        screen.print_line()
        screen.print_line(f"Clock change: {warning}", "yellow")


def upcoming(
    session: Session,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Start of the range.", show_default=True)
    ] = "now",
    within: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="Length of the range, at most 31d.")
    ] = "1d",
    limit: Limit = DEFAULT_UPCOMING_LIMIT,
) -> None:
    """List the next occurrences of all jobs."""
    from punctual_cli.input.job_flags import parse_option

    start_at = parse_time_option("--from", start, session.clock())
    duration: timedelta = parse_option("--within", lambda: moments.parse_duration(within))
    end_at = parse_option("--within", lambda: start_at + duration)
    occurrences = fetch_up_to(
        session,
        limit,
        lambda max_items: session.client.schedules.upcoming(
            from_=start_at, to=end_at, limit=max_items
        ),
    )
    answers.write_items(session, occurrences, lambda times: _print_upcoming(session, times, within))


def _print_upcoming(session: Session, occurrences: "list[Upcoming]", within: str) -> None:
    screen = session.screen
    if not occurrences:
        screen.print_line(f"Nothing is due within {within}.")
        return
    screen.print_table(
        [Column("WHEN"), Column("JOB", min_width=12)],
        [(occurrence.utc, occurrence.name) for occurrence in occurrences],
    )
