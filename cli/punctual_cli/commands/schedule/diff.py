"""The command punctual diff."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.commands.apply import planned
from punctual_cli.errors import CommandError
from punctual_cli.input import completions, job_files, moments
from punctual_cli.input.job_flags import JobFlags
from punctual_cli.output import answers
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import ScheduleDiff

MAX_LINES = 8  # of each kind
_SCHEDULE_TYPE = "schedule_type"
Fields = dict[str, Any]


Before = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB|EXPR",
        help="Id or name of a job, or a cron expression before another one.",
        autocompletion=completions.complete_jobs,
        show_default=False,
    ),
]
After = Annotated[
    str | None,
    typer.Argument(metavar="EXPR", help="The other cron expression.", show_default=False),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Compare the jobs of these files, as punctual apply reads them. Repeatable.",
        show_default=False,
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=366, metavar="N", help="Days to compare.")]


@dataclass(frozen=True)
class NewSchedule:
    """The options that change the schedule of a job."""

    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="EXPR", help="New cron expression.", show_default=False),
    ] = None
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="New interval.", show_default=False),
    ] = None
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="New single time.", show_default=False),
    ] = None
    tz: Annotated[
        str | None,
        typer.Option("--tz", metavar="ZONE", help="New time zone.", show_default=False),
    ] = None
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="New value of any field of the schedule. Repeatable.",
            show_default=False,
        ),
    ] = None

    def job_flags(self) -> JobFlags:
        return JobFlags(
            cron=self.cron, every=self.every, at=self.at, tz=self.tz, assign=self.assign
        )


def diff(
    session: Session,
    before: Before = None,
    after: After = None,
    *,
    new_schedule: NewSchedule,
    file: Files = None,
    days: Days = 30,
) -> None:
    """Show what a change of a schedule does to the next days. Nothing is changed.

    It compares a job with new options, two cron expressions, or jobs with files.
    """
    flags = new_schedule.job_flags()
    if file is not None:
        if before is not None or flags != JobFlags():
            raise CommandError("--file cannot be combined with a job, an expression or options.")
        _diff_files(session, file, days)
        return
    if before is None:
        raise CommandError(
            "What to compare is missing.",
            advice="For example: punctual diff JOB --cron '0 3 * * *'.",
        )
    name, old, new = (
        _two_expressions(before, after, flags)
        if after is not None
        else _changed_job(session, before, flags)
    )
    answers.write_item(
        session,
        session.client.schedules.diff(old, new, days=days),
        lambda answer: _print_diff(session, name, answer),
    )


def _two_expressions(before: str, after: str, flags: JobFlags) -> tuple[str, Any, Any]:
    if flags != JobFlags(tz=flags.tz):
        raise CommandError("Two expressions take only --tz and --days.")
    zone = {} if flags.tz is None else {"timezone": flags.tz}
    old, new = (
        {_SCHEDULE_TYPE: "CRON", "cron_expression": expression, **zone}
        for expression in (before, after)
    )
    return after, old, new


def _changed_job(session: Session, reference: str, flags: JobFlags) -> tuple[str, Any, Any]:
    if flags == JobFlags():
        raise CommandError(
            "The new schedule is missing.",
            advice="Add --cron, --every, --at, --tz or --set. Two cron expressions go too.",
        )
    job = session.client.jobs.get(reference)
    changes = flags.apply_to({}, session.clock())
    return job.name, job, changed_schedule(job.raw, changes)


def changed_schedule(job: Mapping[str, Any], changes: Mapping[str, Any]) -> Fields:
    """Return the schedule fields of a job after a change. Another type drops fields of the old.

    >>> job = {"schedule_type": "CRON", "cron_expression": "0 2 * * *", "timezone": "UTC"}
    >>> changed_schedule({**job, "exclude": []}, {"cron_expression": "0 3 * * *"})
    {'schedule_type': 'CRON', 'cron_expression': '0 3 * * *', 'timezone': 'UTC'}
    """
    from punctual.web.models.schedule_types import TYPES_OF_FIELD

    others = sorted(changes.keys() - {_SCHEDULE_TYPE, *TYPES_OF_FIELD})
    if others:
        raise CommandError(f"{others[0]} is not a field of a schedule.")
    schedule_type = changes.get(_SCHEDULE_TYPE, job[_SCHEDULE_TYPE])
    merged: Fields = {_SCHEDULE_TYPE: schedule_type}
    for name, kinds in TYPES_OF_FIELD.items():
        value = changes[name] if name in changes else job.get(name)
        if value not in (None, []) and (schedule_type in kinds or name in changes):
            merged[name] = value
    return dict(sorted(merged.items(), key=lambda item: _field_position(item[0])))


def _field_position(name: str) -> int:
    from punctual.web.models.schedule_types import TYPES_OF_FIELD

    return [_SCHEDULE_TYPE, "cron_expression", *TYPES_OF_FIELD].index(name)


def _diff_files(session: Session, files: Sequence[str], days: int) -> None:
    with planned(session, job_files.expand_files(files), False) as plan:
        compared = []
        for change in plan.changes:
            if _schedule_of(change.changed_fields):
                job_id, new = change.present["job_id"], _schedule_of(change.declared.fields)
                answer = session.client.schedules.diff(job_id, new, days=days)
                compared.append((change.declared.name, answer))
        created = [create.declared.name for create in plan.creates]
    if session.as_json:
        answers.write_json(
            {
                "changed": [{"name": name, **answer.raw} for name, answer in compared],
                "created": created,
            }
        )
        return
    for name, answer in compared:
        _print_diff(session, name, answer)
        session.screen.print_line()
    for name in created:
        session.screen.print_line(f"+ {name} is new", "green")
    if not compared and not created:
        session.screen.print_line("No schedule changes.")


def _schedule_of(fields: Mapping[str, Any]) -> Any:
    from punctual.web.models.schedule_types import TYPES_OF_FIELD

    names = {_SCHEDULE_TYPE, *TYPES_OF_FIELD}
    return {name: value for name, value in fields.items() if name in names}


def _print_diff(session: Session, name: str, answer: "ScheduleDiff") -> None:
    screen = session.screen
    last_at = None if answer.to is None else (answer.to - timedelta(seconds=1)).astimezone()
    until = "" if last_at is None else f" until {last_at:%a %Y-%m-%d}"
    screen.print_line(f"{name}: {_summary(answer)}{until}", "bold")
    for text, style in _lines(answer):
        screen.print_line(text, style)
    for warning in answer.warnings:
        screen.print_line(f"! {warning}", "yellow")


def _summary(answer: "ScheduleDiff") -> str:
    parts = [
        (answer.moved.count, f"moved{_shift_text(answer)}"),
        (answer.added.count, "added"),
        (answer.removed.count, "removed"),
        (answer.unchanged.count, "unchanged"),
    ]
    return ", ".join(f"{count:,} {text}" for count, text in parts if count) or "no times"


def _shift_text(answer: "ScheduleDiff") -> str:
    seconds = answer.moved.shift_seconds
    if seconds is None:
        return ""
    distance = moments.format_distance(timedelta(seconds=abs(seconds)))
    return f" {distance} {'later' if seconds > 0 else 'earlier'}"


def _lines(answer: "ScheduleDiff") -> Iterator[tuple[str, str]]:
    for moved in answer.moved.times[:MAX_LINES]:
        before, after = moved.before.local, moved.after.local
        yield f"~ {before:%a %Y-%m-%d} {_clock_text(before)} → {_clock_text(after)}", "cyan"
    yield from _more("~", answer.moved.count, "cyan")
    for sign, style, kind in (("-", "red", answer.removed), ("+", "green", answer.added)):
        for time in kind.times[:MAX_LINES]:
            yield f"{sign} {time.local:%a %Y-%m-%d} {_clock_text(time.local)}", style
        yield from _more(sign, kind.count, style)


def _clock_text(local: datetime) -> str:
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def _more(sign: str, count: int, style: str) -> Iterator[tuple[str, str]]:
    if count > MAX_LINES:
        yield f"{sign} and {count - MAX_LINES:,} more", style
