"""The options by which a command reaches many jobs, or many runs, instead of one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from punctual_cli.errors import CommandError
from punctual_cli.input import moments
from punctual_cli.input.choices import RunStatus
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.options import From, To, Yes, option_values
from punctual_cli.input.text_fields import parse_tags

Tag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="All jobs with this tag. Repeatable.", show_default=False
    ),
]
NamePrefix = Annotated[
    str | None,
    typer.Option(
        "--name-prefix", metavar="TEXT", help="All jobs with this name prefix.", show_default=False
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="All jobs with this text in their name or tags.", show_default=False
    ),
]
EndedStatus = Annotated[
    list[RunStatus] | None,
    typer.Option(
        help="All runs with this status. Repeatable. Default: FAILED and TIMED_OUT.",
        case_sensitive=False,
        show_default=False,
    ),
]
NameOfJob = Annotated[
    str | None,
    typer.Option(
        "--job-name", metavar="NAME", help="All runs of jobs of this name.", show_default=False
    ),
]
LatestOnly = Annotated[
    bool,
    typer.Option(
        "--latest-only", help="Leave out runs that were retried, or followed by a success."
    ),
]
All = Annotated[bool, typer.Option("--all", help="All jobs of the tenant.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what matches, and change nothing.")]


@dataclass(frozen=True)
class JobFilters:
    """The filters of a command on many jobs."""

    tag: Tag = None
    name_prefix: NamePrefix = None
    text: Text = None

    def bulk_filter(self, **more: Any) -> dict[str, Any]:
        """Return the filter as POST /jobs/bulk takes it."""
        return _bulk_filter(self.tag, name_prefix=self.name_prefix, text=self.text, **more)


@dataclass(frozen=True)
class RunFilters:
    """The filters of a command on many runs."""

    status: EndedStatus = None
    job_name: NameOfJob = None
    tag: Tag = None
    start: From = None
    end: To = None
    latest_only: LatestOnly = False

    def bulk_filter(self, now: datetime) -> dict[str, Any]:
        """Return the filter as POST /jobs/bulk takes it."""
        times = {"from": (self.start, "--from"), "to": (self.end, "--to")}
        return _bulk_filter(
            self.tag,
            status=option_values(self.status),
            job_name=self.job_name,
            latest_only=self.latest_only or None,
            **{
                name: moments.format_rfc3339(parse_time_option(option, text, now))
                for name, (text, option) in times.items()
                if text is not None
            },
        )


@dataclass(frozen=True)
class BulkOptions:
    """The other options of a command on many jobs or runs."""

    is_all: All = False
    dry_run: DryRun = False
    yes: Yes = False


def _bulk_filter(tag: list[str] | None, **more: Any) -> dict[str, Any]:
    tags = [f"{key}:{value}" for key, value in parse_tags(tag or ()).items()]
    given = {"tag": tags or None, **more}
    return {name: value for name, value in given.items() if value not in (None, [], "")}


def single_job(job: str | None, bulk_filter: dict[str, Any], bulk: BulkOptions) -> str | None:
    """Return the job, or None if filters are given instead. Fail unless it is one of the two."""
    if job is not None and (bulk_filter or bulk.is_all):
        raise CommandError("A job and filters cannot be given together.")
    if job is not None and bulk.dry_run:
        raise CommandError("--dry-run needs filters such as --tag team=data.")
    if job is None and not bulk_filter and not bulk.is_all:
        raise CommandError(
            "Name a job, or filters such as --tag team=data.", advice="--all stands for all jobs."
        )
    return job
