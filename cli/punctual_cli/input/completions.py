"""Completions for a word on the command line."""

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from punctual.client import Punctual

COMPLETION_SECONDS = 1.0  # the longest wait after Tab
MAX_COMPLETIONS = 50


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of jobs, or ids where a shell would split the name."""
    return _fetch_or_nothing(ctx, lambda client: _fetch_jobs(client, incomplete))


def complete_secrets(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of secrets."""
    return _fetch_or_nothing(ctx, lambda client: _fetch_secrets(client, incomplete))


def _fetch_or_nothing(
    ctx: typer.Context, fetch: Callable[["Punctual"], list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    from punctual.client import PunctualError
    from punctual_cli.errors import CommandError

    try:
        return fetch(_make_client(ctx))
    except (PunctualError, CommandError, OSError):
        return []  # completion has no place for an error message


def _make_client(ctx: typer.Context) -> "Punctual":
    from punctual.client import Retries
    from punctual_cli import profiles, session

    options = _given_options(ctx)
    target_options = profiles.TargetOptions(
        options.get("url"), options.get("token"), options.get("profile")
    )
    target = profiles.resolve_target(target_options, os.environ, profiles.config_path(os.environ))
    return session.make_client(target, timeout=COMPLETION_SECONDS, retries=Retries(attempts=1))


def _fetch_jobs(client: "Punctual", incomplete: str) -> list[tuple[str, str]]:
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


def _fetch_secrets(client: "Punctual", incomplete: str) -> list[tuple[str, str]]:
    names = [secret.name for secret in client.secrets.list()]
    return [(name, "") for name in names if name.startswith(incomplete)][:MAX_COMPLETIONS]


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
