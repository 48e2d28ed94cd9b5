"""The program with all its commands."""

from typing import Annotated

import typer

from punctual_cli import errors, shapes
from punctual_cli.command_group import Json, NoColor, Profile, Token, Url, command, group
from punctual_cli.commands import (
    access,
    apply,
    audit,
    completion,
    dev,
    export,
    jobs_actions,
    jobs_read,
    jobs_write,
    runs_actions,
    runs_read,
    schedules,
    service,
    tokens,
)

JOBS_PANEL, SERVER, SETUP = "Jobs", "The installation", "Setting up"

EPILOG = "Exit codes: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in errors.Code
)


app = typer.Typer(
    name=completion.PROGRAM,
    cls=shapes.Root,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Hand jobs to Punctual, and see what ran.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from punctual.settings import VERSION

        typer.echo(f"punctual {VERSION}")
        raise typer.Exit


@app.callback()
def punctual(
    ctx: typer.Context,
    url: Url = None,
    token: Token = None,
    profile: Profile = None,
    as_json: Json = False,
    no_color: NoColor = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Hand jobs to Punctual, and see what ran."""
    ctx.obj = {
        "url": url,
        "token": token,
        "profile": profile,
        "as_json": as_json,
        "no_color": no_color,
    }


jobs = group("Jobs: make them, change them, run them.")
runs = group("Runs: what happened, what they printed, what they do now.")
token = group("Tokens: who may call, for administrators.")
app.add_typer(jobs, name="jobs", rich_help_panel=JOBS_PANEL)
app.add_typer(runs, name="runs", rich_help_panel=JOBS_PANEL)
command(app, "preview", JOBS_PANEL)(schedules.preview)
command(app, "upcoming", JOBS_PANEL)(schedules.upcoming)
command(app, "apply", JOBS_PANEL)(apply.apply)
command(app, "export", JOBS_PANEL)(export.export)
command(app, "stats", SERVER)(service.stats)
command(app, "health", SERVER)(service.health)
app.add_typer(token, name="tokens", rich_help_panel=SERVER)
command(app, "webhook-secret", SERVER)(tokens.webhook_secret)
command(app, "audit", SERVER)(audit.audit)
command(app, "login", SETUP)(access.login)
command(app, "logout", SETUP)(access.logout)
command(app, "whoami", SETUP)(access.whoami)
command(app, "dev", SETUP)(dev.dev)
command(app, "completion", SETUP)(completion.completion)

command(jobs, "create")(jobs_write.create)
command(jobs, "list")(jobs_read.list_jobs)
command(jobs, "show")(jobs_read.show)
command(jobs, "update")(jobs_write.update)
command(jobs, "pause")(jobs_actions.pause)
command(jobs, "resume")(jobs_actions.resume)
command(jobs, "cancel")(jobs_actions.cancel)
command(jobs, "run")(jobs_actions.run)
command(jobs, "backfill")(jobs_actions.backfill)
command(jobs, "explain")(jobs_read.explain)

command(runs, "list")(runs_read.list_runs)
command(runs, "show")(runs_read.show)
command(runs, "logs")(runs_read.logs)
command(runs, "output")(runs_read.output)
command(runs, "watch")(runs_read.watch)
command(runs, "cancel")(runs_actions.cancel)
command(runs, "retry")(runs_actions.retry)

command(token, "create")(tokens.create)
command(token, "list")(tokens.list_tokens)
command(token, "revoke")(tokens.revoke)
