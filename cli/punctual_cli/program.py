"""The program with all its commands."""

from typing import Annotated

import typer

from punctual_cli import errors, shapes
from punctual_cli.command_group import Json, NoColor, Profile, Token, Url, command, make_group
from punctual_cli.commands import (
    access,
    apply,
    artifacts,
    audit,
    claims,
    completion,
    dev,
    export,
    failures,
    jobs_actions,
    jobs_read,
    jobs_write,
    operations,
    runs_actions,
    runs_read,
    schedules,
    secrets,
    service,
    tokens,
)
from punctual_cli.commands.schedule import diff, forecast, occurrences
from punctual_cli.live import jobs_watch, top

JOBS_PANEL, SERVER_PANEL, SETUP_PANEL = "Jobs", "Installation", "Setup"

HELP_EPILOG = "Exit codes: " + ", ".join(
    f"{code.value} {code.name.lower().replace('_', ' ')}" for code in errors.ExitCode
)


app = typer.Typer(
    name=completion.PROGRAM_NAME,
    cls=shapes.RootGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Schedule jobs and inspect their runs.",
    epilog=HELP_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from punctual.settings import PRODUCT_VERSION

        typer.echo(f"punctual {PRODUCT_VERSION}")
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
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Schedule jobs and inspect their runs."""
    ctx.obj = {
        "url": url,
        "token": token,
        "profile": profile,
        "as_json": as_json,
        "no_color": no_color,
    }


jobs_group = make_group("Create, change and run jobs.")
runs_group = make_group("List, inspect, cancel and retry runs.")
failures_group = make_group(
    "List open failures, and acknowledge them. Without a command, list them.", shapes.ListGroup
)
operations_group = make_group("List, watch and cancel operations on many jobs.")
artifacts_group = make_group("Upload, list and delete files that script jobs run.")
claims_group = make_group("Renew, finish and upload by a claim, for external executors.")
tokens_group = make_group("Create, list and revoke tokens. Requires the role admin.")
secrets_group = make_group("Set, list and delete the secrets of tasks. Requires the role editor.")
app.add_typer(jobs_group, name="jobs", rich_help_panel=JOBS_PANEL)
app.add_typer(runs_group, name="runs", rich_help_panel=JOBS_PANEL)
app.add_typer(failures_group, name="failures", rich_help_panel=JOBS_PANEL)
app.add_typer(operations_group, name="operations", rich_help_panel=JOBS_PANEL)
command(app, "preview", JOBS_PANEL)(schedules.preview)
command(app, "upcoming", JOBS_PANEL)(schedules.upcoming)
command(app, "forecast", JOBS_PANEL)(forecast.forecast)
command(app, "diff", JOBS_PANEL)(diff.diff)
command(app, "apply", JOBS_PANEL)(apply.apply)
command(app, "export", JOBS_PANEL)(export.export)
command(app, "top", JOBS_PANEL)(top.top)
command(app, "status", SERVER_PANEL)(service.status)
command(app, "stats", SERVER_PANEL)(service.stats)
command(app, "health", SERVER_PANEL)(service.health)
app.add_typer(artifacts_group, name="artifacts", rich_help_panel=JOBS_PANEL)
app.add_typer(claims_group, name="claims", rich_help_panel=JOBS_PANEL)
app.add_typer(tokens_group, name="tokens", rich_help_panel=SERVER_PANEL)
app.add_typer(secrets_group, name="secrets", rich_help_panel=SERVER_PANEL)
command(app, "webhook-secret", SERVER_PANEL)(tokens.webhook_secret)
command(app, "audit", SERVER_PANEL)(audit.audit)
command(app, "login", SETUP_PANEL)(access.login)
command(app, "logout", SETUP_PANEL)(access.logout)
command(app, "whoami", SETUP_PANEL)(access.whoami)
command(app, "dev", SETUP_PANEL)(dev.dev)
command(app, "completion", SETUP_PANEL)(completion.completion)

command(jobs_group, "create")(jobs_write.create)
command(jobs_group, "list")(jobs_read.list_jobs)
command(jobs_group, "watch")(jobs_watch.watch)
command(jobs_group, "show")(jobs_read.show)
command(jobs_group, "update")(jobs_write.update)
command(jobs_group, "pause")(jobs_actions.pause)
command(jobs_group, "resume")(jobs_actions.resume)
command(jobs_group, "cancel")(jobs_actions.cancel)
command(jobs_group, "run")(jobs_actions.run)
command(jobs_group, "backfill")(jobs_actions.backfill)
command(jobs_group, "explain")(jobs_read.explain)
command(jobs_group, "occurrences")(occurrences.occurrences)
command(jobs_group, "versions")(jobs_read.versions)

command(runs_group, "list")(runs_read.list_runs)
command(runs_group, "show")(runs_read.show)
command(runs_group, "logs")(runs_read.logs)
command(runs_group, "output")(runs_read.output)
command(runs_group, "watch")(runs_read.watch)
command(runs_group, "cancel")(runs_actions.cancel)
command(runs_group, "retry")(runs_actions.retry)

command(failures_group, "list")(failures.list_failures)
command(failures_group, "acknowledge")(failures.acknowledge)
command(operations_group, "list")(operations.list_operations)
command(operations_group, "show")(operations.show)
command(operations_group, "watch")(operations.watch)
command(operations_group, "cancel")(operations.cancel)

command(artifacts_group, "upload")(artifacts.upload)
command(artifacts_group, "list")(artifacts.list_artifacts)
command(artifacts_group, "get")(artifacts.get)
command(artifacts_group, "delete")(artifacts.delete)

command(claims_group, "renew")(claims.renew)
command(claims_group, "finish")(claims.finish)
command(claims_group, "upload")(claims.upload)

command(tokens_group, "create")(tokens.create)
command(tokens_group, "list")(tokens.list_tokens)
command(tokens_group, "revoke")(tokens.revoke)

command(secrets_group, "set")(secrets.set_secret)
command(secrets_group, "list")(secrets.list_secrets)
command(secrets_group, "delete")(secrets.delete)
