"""The command punctual forecast."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from punctual_cli.output import answers
from punctual_cli.output.bar_plot import Bar, print_bars
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Forecast

MAX_BARS = 28  # one screen
MINUTE = timedelta(minutes=1)
_STEPS_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440)


class Span(NamedTuple):
    """The number of starts from a local time on."""

    start: datetime
    starts: int
    is_busiest: bool  # whether the busiest minute lies in it


def forecast(
    session: Session,
    hours: Annotated[
        int,
        typer.Option("--hours", min=1, max=168, metavar="N", help="Length of the range, in hours."),
    ] = 24,
) -> None:
    """Show how many runs are scheduled to start in the coming hours, over all jobs."""
    answers.write_item(
        session,
        session.client.forecast(hours=hours),
        lambda answer: _print_forecast(session, answer, hours),
    )


def _print_forecast(session: Session, answer: "Forecast", hours: int) -> None:
    screen = session.screen
    if not answer.starts:
        screen.print_line(f"Nothing starts within {hours} h.")
        return
    screen.print_line(
        f"{_count(answer.starts, 'start')} of {_count(answer.jobs, 'job')} within {hours} h", "bold"
    )
    if answer.busiest is not None:
        at = answer.busiest.minute.astimezone()
        starts = _count(answer.busiest.starts, "start")
        screen.print_line(f"Busiest minute: {at:%a %H:%M}, {starts}")
    screen.print_line()
    spans = group_by_span(answer)
    if screen.out.is_terminal:
        print_bars(screen, _bars(spans))
    else:
        screen.print_table(
            [Column("FROM"), Column("STARTS", align_right=True)],
            [(f"{span.start:%Y-%m-%d %H:%M}", f"{span.starts:,}") for span in spans],
        )
    if answer.from_completion_jobs:
        jobs = _count(answer.from_completion_jobs, "job")
        screen.print_note(
            f"{jobs} with an interval from completion: counted as if the runs took no time."
        )


def group_by_span(answer: "Forecast") -> list[Span]:
    """Return spans of equal length by the local clock, few enough for one screen."""
    minutes = len(answer.minutes) * answer.step_seconds // 60
    step = next(step for step in _STEPS_MINUTES if minutes <= step * MAX_BARS)
    busiest_at = None if answer.busiest is None else answer.busiest.minute
    starts_by_span: dict[datetime, int] = {}
    for minute in answer.minutes:
        span = _span_of(minute.minute, step)
        starts_by_span[span] = starts_by_span.get(span, 0) + minute.starts
    busiest_span = None if busiest_at is None else _span_of(busiest_at, step)
    return [Span(span, starts, span == busiest_span) for span, starts in starts_by_span.items()]


def _span_of(at: datetime, step: int) -> datetime:
    """Return the local time at which the span of `step` minutes begins."""
    local = at.astimezone()
    minute_of_day = local.hour * 60 + local.minute
    return local.replace(second=0, microsecond=0) - minute_of_day % step * MINUTE


def _bars(spans: Sequence[Span]) -> list[Bar]:
    bars = []
    last_date = None
    for span in spans:
        day = f"{span.start:%a}" if span.start.date() != last_date else ""
        last_date = span.start.date()
        bars.append(Bar(f"{day:3} {span.start:%H:%M}", span.starts, span.is_busiest))
    return bars


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "job"), _count(1_000, "start")
    ('1 job', '1,000 starts')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
