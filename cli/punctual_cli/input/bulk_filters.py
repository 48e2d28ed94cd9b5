"""The filters by which a command reaches many jobs, or many runs."""

from typing import Annotated, Any

import typer

from punctual_cli.errors import CommandError
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
All = Annotated[bool, typer.Option("--all", help="All jobs of the tenant.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what matches, and change nothing.")]


def job_filter(
    tag: list[str] | None, name_prefix: str | None, text: str | None, **more: Any
) -> dict[str, Any]:
    """Return the filter of the given options, as POST /jobs/bulk takes it."""
    tags = [f"{key}:{value}" for key, value in parse_tags(tag or ()).items()]
    given = {"tag": tags or None, "name_prefix": name_prefix, "text": text, **more}
    return {name: value for name, value in given.items() if value not in (None, [], "")}


def single_job(
    job: str | None, bulk_filter: dict[str, Any], is_all: bool, *, dry_run: bool
) -> str | None:
    """Return the job, or None if filters are given instead. Fail unless it is one of the two."""
    if job is not None and (bulk_filter or is_all):
        raise CommandError("A job and filters cannot be given together.")
    if job is not None and dry_run:
        raise CommandError("--dry-run needs filters such as --tag team=data.")
    if job is None and not bulk_filter and not is_all:
        raise CommandError(
            "Name a job, or filters such as --tag team=data.", advice="--all stands for all jobs."
        )
    return job
