"""Completions for a word on the command line."""

import os
import shlex
from typing import Any

import typer

COMPLETION_SECONDS = 1.0  # the longest wait after Tab
MAX_COMPLETIONS = 50


def jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return names of jobs, or ids where a shell would split the name."""
    from punctual.client import PunctualError
    from punctual_cli.errors import Trouble

    try:
        return _jobs(ctx, incomplete)
    except (PunctualError, Trouble, OSError):
        return []  # completion has no place for an error message


def _jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    from punctual.client import Retries
    from punctual_cli import profiles, session

    given = _given(ctx)
    asked = profiles.Asked(given.get("url"), given.get("token"), given.get("profile"))
    place = profiles.place(asked, os.environ, profiles.config_path(os.environ))
    client = session.connect(place, timeout=COMPLETION_SECONDS, retries=Retries(attempts=1))
    named = client.jobs.list(
        name_prefix=incomplete or None, status=("SCHEDULED", "PAUSED"), limit=MAX_COMPLETIONS
    )
    found = []
    for job in named:
        usable = shlex.quote(job.name) == job.name
        found.append((job.name if usable else job.job_id, job.name if not usable else job.status))
    return found


def _given(ctx: typer.Context) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at: Any = ctx
    while at is not None:
        found = {**{k: v for k, v in at.params.items() if v is not None}, **found}
        at = at.parent
    return found
