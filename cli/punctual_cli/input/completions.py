"""Completions for a word on the command line."""

import os
import shlex
from typing import Any

import typer

COMPLETION_SECONDS = 1.0  # the longest wait after Tab
MAX_COMPLETIONS = 50


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of jobs, or ids where a shell would split the name."""
    from punctual.client import PunctualError
    from punctual_cli.errors import CommandError

    try:
        return _fetch_completions(ctx, incomplete)
    except (PunctualError, CommandError, OSError):
        return []  # completion has no place for an error message


def _fetch_completions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    from punctual.client import Retries
    from punctual_cli import profiles, session

    options = _given_options(ctx)
    target_options = profiles.TargetOptions(
        options.get("url"), options.get("token"), options.get("profile")
    )
    target = profiles.resolve_target(target_options, os.environ, profiles.config_path(os.environ))
    client = session.make_client(target, timeout=COMPLETION_SECONDS, retries=Retries(attempts=1))
    jobs = client.jobs.list(
        name_prefix=incomplete or None, status=("SCHEDULED", "PAUSED"), limit=MAX_COMPLETIONS
    )
    completions = []
    for job in jobs:
        is_one_word = shlex.quote(job.name) == job.name
        completions.append(
            (job.name if is_one_word else job.job_id, job.name if not is_one_word else job.status)
        )
    return completions


def _given_options(ctx: typer.Context) -> dict[str, Any]:
    options: dict[str, Any] = {}
    context: Any = ctx
    while context is not None:
        options = {
            **{name: value for name, value in context.params.items() if value is not None},
            **options,
        }
        context = context.parent
    return options
