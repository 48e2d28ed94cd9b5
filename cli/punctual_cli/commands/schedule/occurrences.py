"""The command punctual jobs occurrences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.input import moments
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.references import JobName
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Occurrence


def occurrences(
    session: Session,
    job: JobName,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Earliest time, such as -2h.")
    ] = "-1d",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Latest time, exclusive.")
    ] = "+1d",
) -> None:
    """Show every outcome of a job and its planned times, earliest first."""
    now = session.clock()
    start_at, end_at = parse_time_option("--from", start, now), parse_time_option("--to", end, now)
    items = session.client.jobs.occurrences(job, start_at, end_at)
    if session.as_json:
        answers.write_json([_as_json(item) for item in items])
    else:
        _print_table(session, items)


def _as_json(item: "Occurrence") -> dict[str, Any]:
    return {
        "scheduled_time": moments.format_rfc3339(item.scheduled_time),
        "last_scheduled_time": moments.format_rfc3339(item.last_scheduled_time),
        "count": item.count,
        "status": item.status,
        "run": None if item.run is None else item.run.raw,
    }


def _print_table(session: Session, items: "Sequence[Occurrence]") -> None:
    screen = session.screen
    if not items:
        screen.print_line("Nothing happened and nothing is planned in this range.")
        return
    screen.print_table(
        [Column("SCHEDULED"), Column("STATUS"), Column("RUN"), Column("WHY", min_width=12)],
        [
            (
                item.scheduled_time,
                screen.status(item.status, item.count),
                None if item.run is None else item.run.run_id,
                "" if item.run is None or item.run.reason is None else item.run.reason.text,
            )
            for item in items
        ],
    )
