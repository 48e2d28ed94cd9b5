"""The options that narrow and order the lists of jobs and of runs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from punctual_cli.input import moments
from punctual_cli.input.choices import (
    JobHealth,
    JobSort,
    JobStatus,
    RunReason,
    RunStatus,
    RunTime,
    ScheduleType,
    Trigger,
)
from punctual_cli.input.job_flags import parse_option, parse_time_option
from punctual_cli.input.options import From, To, option_value, option_values
from punctual_cli.input.text_fields import parse_tags

MinDuration = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Only runs with a last attempt at least this long, such as 30s.",
        show_default=False,
    ),
]
MaxDuration = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Only runs with a last attempt at most this long.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class JobListFilters:
    """The filters and the order of a list of jobs."""

    status: Annotated[
        list[JobStatus] | None,
        typer.Option(
            help="Only jobs with this status. Repeatable.", case_sensitive=False, show_default=False
        ),
    ] = None
    kind: Annotated[
        ScheduleType | None,
        typer.Option(
            "--type",
            help="Only jobs with this schedule type.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only jobs with exactly this name.", show_default=False),
    ] = None
    name_prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only jobs with this name prefix.", show_default=False),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only jobs with this text in their name or tags, in upper or lower case.",
            show_default=False,
        ),
    ] = None
    created_by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only jobs created by this caller.", show_default=False),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Only jobs with this tag. Repeatable.", show_default=False
        ),
    ] = None
    health: Annotated[
        JobHealth | None,
        typer.Option(
            help="Only jobs with an open failure, with a late run, or without any run.",
            case_sensitive=False,
            show_default=False,
        ),
    ] = None
    sort: Annotated[
        JobSort,
        typer.Option(
            help="Newest first, by name, or by the next run, soonest first.", case_sensitive=False
        ),
    ] = JobSort.CREATED

    def query(self) -> dict[str, Any]:
        """Return the arguments of `jobs.list`."""
        return {
            "status": option_values(self.status),
            "schedule_type": option_value(self.kind),
            "name": self.name,
            "name_prefix": self.name_prefix,
            "text": self.text,
            "created_by": self.created_by,
            "tags": parse_tags(self.tag or ()),
            "health": option_value(self.health),
            "sort": option_value(self.sort),
        }


@dataclass(frozen=True)
class RunListFilters:
    """The filters of a list of runs, and the time that it shows."""

    status: Annotated[
        list[RunStatus] | None,
        typer.Option(
            help="Only runs with this status. Repeatable.", case_sensitive=False, show_default=False
        ),
    ] = None
    trigger: Annotated[
        Trigger | None,
        typer.Option(help="Only runs with this trigger.", case_sensitive=False, show_default=False),
    ] = None
    start: From = None
    end: To = None
    by: Annotated[
        RunTime,
        typer.Option(help="Time to show, and to compare with --from and --to."),
    ] = RunTime.SCHEDULED
    reason: Annotated[
        list[RunReason] | None,
        typer.Option(
            help="Only runs with this reason. Repeatable.", case_sensitive=False, show_default=False
        ),
    ] = None
    min_duration: MinDuration = None
    max_duration: MaxDuration = None
    job_name: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Only runs of jobs with exactly this name.", show_default=False
        ),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only runs of jobs with this tag. Repeatable.",
            show_default=False,
        ),
    ] = None

    def query(self, now: datetime) -> dict[str, Any]:
        """Return the arguments of `runs.list`."""
        is_by_time = self.start is not None or self.end is not None
        return {
            "status": option_values(self.status),
            "trigger": option_value(self.trigger),
            "from_": _parse_time("--from", self.start, now),
            "to": _parse_time("--to", self.end, now),
            "by": option_value(self.by) if is_by_time else None,
            "reason": option_values(self.reason),
            "min_duration": _parse_duration_option("--min-duration", self.min_duration),
            "max_duration": _parse_duration_option("--max-duration", self.max_duration),
            "job_name": self.job_name,
            "tags": parse_tags(self.tag) if self.tag else None,
        }


def _parse_time(option: str, text: str | None, now: datetime) -> datetime | None:
    return None if text is None else parse_time_option(option, text, now)


def _parse_duration_option(option: str, text: str | None) -> timedelta | None:
    return None if text is None else parse_option(option, lambda: moments.parse_duration(text))
