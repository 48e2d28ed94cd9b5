"""The commands punctual tokens create, list and revoke, and punctual webhook-secret."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import Code, Trouble
from punctual_cli.input.choices import Role
from punctual_cli.input.job_flags import moment_of
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, first
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Token


def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will use it, or what.")],
    role: Annotated[Role, typer.Option(help="What it may.", case_sensitive=False)] = Role.VIEWER,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="In force until then: +90d.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For another tenant.", show_default=False),
    ] = None,
) -> None:
    """Make a token. It is shown this once."""
    until = None if expires is None else moment_of("--expires", expires, session.clock())
    found = session.client.tokens.create(
        name=name, role=role.value, expires_at=until, tenant=tenant
    )
    if session.as_json:
        answers.as_json(found.raw)
        return
    # Only the token goes to standard output, so it can be piped to a secret store.
    sys.stdout.write(found.token + "\n")
    note = session.screen.note
    note(f"{found.token_id}: {found.name}, {found.role} of {found.tenant}.")
    note("Keep it now: it is not shown again.", "yellow")


def list_tokens(session: Session, limit: Limit = DEFAULT_LIST_LIMIT) -> None:
    """The tokens, the newest first, without their secrets."""
    found = first(session, limit, lambda most: session.client.tokens.list(limit=most))
    answers.many(session, found, lambda tokens: _table(session, tokens))


def _table(session: Session, tokens: "list[Token]") -> None:
    screen = session.screen
    if not tokens:
        screen.line("No tokens.")
        return
    columns = [
        Column("TOKEN"),
        Column("NAME", least=8),
        Column("ROLE"),
        Column("USED", least=7),
        Column("STATE", least=9),
    ]
    screen.table(columns, [_row(session, token) for token in tokens])


def _row(session: Session, token: "Token") -> list[Any]:
    screen = session.screen
    used = screen.ago(token.last_used_at) or "never"
    return [token.token_id, token.name, token.role, used, _state(session, token)]


def _state(session: Session, token: "Token") -> str:
    screen = session.screen
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "in force"
    ended = token.expires_at <= session.clock()
    return "expired" if ended else f"ends {screen.ago(token.expires_at)}"


def revoke(
    session: Session,
    which: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or its name.")],
) -> None:
    """End a token: within a minute nobody can call with it."""
    token_id = _id_of(session, which)
    found = session.client.tokens.revoke(token_id)
    answers.one(
        session,
        found,
        lambda one: session.screen.line(f"Revoked {one.name} ({one.token_id}).", "green"),
    )


def webhook_secret(session: Session) -> None:
    """What your webhooks are signed with, for who receives them."""
    secret = session.client.webhook_secret()
    if session.as_json:
        answers.as_json({"secret": secret})
    else:
        sys.stdout.write(secret + "\n")  # only the secret, so it can be piped to a secret store


def _id_of(session: Session, reference: str) -> str:
    """Return a token's id. A name stands for the only token of that name that is not revoked."""
    listed = list(session.client.tokens.list())
    if any(token.token_id == reference for token in listed):
        return reference
    named = [one for one in listed if one.name == reference and one.revoked_at is None]
    if not named:
        raise Trouble(
            f"There is no token {reference!r}.",
            Code.NOT_FOUND,
            "`punctual tokens list` shows what there is.",
        )
    if len(named) > 1:
        shown = "".join(f"\n  {token.token_id}" for token in named)
        raise Trouble(f"{len(named)} tokens are called {reference!r}:{shown}", Code.REFUSED)
    return named[0].token_id
