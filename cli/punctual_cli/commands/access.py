"""The commands punctual login, logout and whoami."""

import os
import sys
from typing import TYPE_CHECKING, Any

from punctual_cli import profiles, session
from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import prompting
from punctual_cli.output import answers
from punctual_cli.profiles import ApiTarget
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Identity


def login(cli_session: Session) -> None:
    """Store the address of the API and a token for later commands."""
    from punctual.client.calls.transport import is_loopback_url

    path = profiles.config_path(os.environ)
    name = (
        cli_session.target_options.profile
        or os.environ.get(profiles.PROFILE_VARIABLE)
        or profiles.DEFAULT_PROFILE
    )
    stored_url = profiles.read_profiles(path).get(name, {}).get("url")
    url = profiles.normalize_url(
        cli_session.target_options.url
        or _ask_url(
            os.environ.get(profiles.URL_VARIABLE)
            or stored_url
            or profiles.local_node_url(os.environ)[0]
        )
    )
    token = cli_session.target_options.token
    if token is None and sys.stdin.isatty():
        token = prompting.ask_secret("Token (empty if the node has no tokens)")
    client = session.make_client(ApiTarget(url, token or None, "login"))
    # Health needs no token, so a wrong address differs from a wrong token.
    client.health()
    identity = client.whoami()
    profiles.save_profile(path, name, url, token or None)
    if token and url.startswith("http:") and not is_loopback_url(url):
        cli_session.screen.print_note("The token is sent unencrypted. Use https.", "yellow")
    if cli_session.as_json:
        answers.write_json({"url": url, "profile": name, "config": str(path), **identity.raw})
        return
    cli_session.screen.print_line(
        f"Logged in at {url} as {identity.name} ({identity.role}).", "green"
    )
    cli_session.screen.print_note(f"Stored in {path}.")


def _ask_url(default: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError("The address of the API is missing. Set it with --url.")
    return prompting.ask("URL of the API", default)


def logout(cli_session: Session) -> None:
    """Delete a stored login.

    The token itself stays valid. Revoke it with punctual tokens revoke.
    """
    path = profiles.config_path(os.environ)
    name = (
        cli_session.target_options.profile
        or os.environ.get(profiles.PROFILE_VARIABLE)
        or profiles.DEFAULT_PROFILE
    )
    existed = profiles.delete_profile(path, name)
    if cli_session.as_json:
        answers.write_json({"profile": name, "forgotten": existed})
    else:
        message = "Logged out" if existed else "No stored login"
        cli_session.screen.print_line(f"{message} (profile {name}).")
    if not existed and cli_session.target_options.profile:
        raise CommandError(f"There is no profile {name!r}.", ExitCode.NOT_FOUND)


def whoami(cli_session: Session) -> None:
    """Show the identity, role and limits of the token in use."""
    answers.write_item(
        cli_session,
        cli_session.client.whoami(),
        lambda identity: _print_identity(cli_session, identity),
    )


def _print_identity(cli_session: Session, identity: "Identity") -> None:
    screen = cli_session.screen
    limits: dict[str, Any] = {} if identity.limits is None else identity.limits.raw
    screen.print_pairs(
        [
            ("Name", identity.name),
            ("Role", identity.role),
            ("Tenant", identity.tenant),
            ("Token", identity.token_id),
            ("Expires", screen.long_time(identity.expires_at)),
            ("Server", f"{cli_session.target.url} ({cli_session.target.source})"),
            *(
                (_limit_label(name), f"at most {value:,}")
                for name, value in limits.items()
                if value is not None
            ),
        ]
    )


def _limit_label(name: str) -> str:
    """Return the name of a limit for people.

    >>> _limit_label("runs_per_minute"), _limit_label("artifact_mb")
    ('Runs per minute', 'Artifact MB')
    """
    return name.replace("_", " ").capitalize().replace(" mb", " MB")
