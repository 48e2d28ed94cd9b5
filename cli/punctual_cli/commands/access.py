"""The commands punctual login, logout and whoami."""

import os
import sys
from typing import TYPE_CHECKING, Any

from punctual_cli import profiles, session
from punctual_cli.errors import Code, Trouble
from punctual_cli.input import prompting
from punctual_cli.output import answers
from punctual_cli.profiles import Place
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Identity


def login(asker: Session) -> None:
    """Keep where the API is, and your token, for the commands to come."""
    path = profiles.config_path(os.environ)
    name = asker.asked.profile or os.environ.get(profiles.PROFILE) or profiles.DEFAULT_PROFILE
    former = profiles.profiles(path).get(name, {}).get("url")
    url = profiles.normal_url(
        asker.asked.url
        or _url(os.environ.get(profiles.URL) or former or profiles.node_here(os.environ)[0])
    )
    token = asker.asked.token
    if token is None and sys.stdin.isatty():
        token = prompting.asked_in_secret("Token (empty for a node without tokens)")
    client = session.connect(Place(url, token or None, "login"))
    # Health needs no token, so a wrong address differs from a wrong token.
    client.health()
    found = client.whoami()
    profiles.keep(path, name, url, token or None)
    if token and url.startswith("http:") and not profiles.is_loopback(url):
        asker.screen.note("The token travels unencrypted: use https.", "yellow")
    if asker.as_json:
        answers.as_json({"url": url, "profile": name, "config": str(path), **found.raw})
        return
    asker.screen.line(f"Logged in at {url} as {found.name} ({found.role}).", "green")
    asker.screen.note(f"Kept in {path}.")


def _url(default: str) -> str:
    if not sys.stdin.isatty():
        raise Trouble("Nobody is here to ask: say where the API is with --url.")
    return prompting.asked("URL of the API", default)


def logout(asker: Session) -> None:
    """Forget what login kept.

    The token itself stays in force: punctual tokens revoke ends it.
    """
    path = profiles.config_path(os.environ)
    name = asker.asked.profile or os.environ.get(profiles.PROFILE) or profiles.DEFAULT_PROFILE
    was_there = profiles.forget(path, name)
    if asker.as_json:
        answers.as_json({"profile": name, "forgotten": was_there})
    else:
        said = "Logged out" if was_there else "There was no login"
        asker.screen.line(f"{said} (profile {name}).")
    if not was_there and asker.asked.profile:
        raise Trouble(f"There is no profile {name!r}.", Code.NOT_FOUND)


def whoami(asker: Session) -> None:
    """Whom the server takes you for, and what you may."""
    answers.one(asker, asker.client.whoami(), lambda one: _card(asker, one))


def _card(asker: Session, found: "Identity") -> None:
    screen = asker.screen
    limits: dict[str, Any] = {} if found.limits is None else found.limits.raw
    screen.pairs(
        [
            ("Name", found.name),
            ("Role", found.role),
            ("Tenant", found.tenant),
            ("Token", found.token_id),
            ("Expires", screen.long(found.expires_at)),
            ("Server", f"{asker.place.url} ({asker.place.source})"),
            *(
                (name.replace("_", " ").capitalize(), f"at most {value:,}")
                for name, value in limits.items()
                if value is not None
            ),
        ]
    )
