"""The commands punctual tokens create, list and revoke, and punctual webhook-secret."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input.choices import Role
from punctual_cli.input.job_flags import parse_time_option
from punctual_cli.input.options import DEFAULT_LIST_LIMIT, Limit, fetch_up_to
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Token


def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user or program.")],
    role: Annotated[
        Role, typer.Option(help="Role of the token.", case_sensitive=False)
    ] = Role.VIEWER,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Expiry time, such as +90d.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Tenant of the token. Default: your tenant.", show_default=False
        ),
    ] = None,
) -> None:
    """Create a token. It is shown only once."""
    expires_at = (
        None if expires is None else parse_time_option("--expires", expires, session.clock())
    )
    new_token = session.client.tokens.create(
        name=name, role=role.value, expires_at=expires_at, tenant=tenant
    )
    if session.as_json:
        answers.write_json(new_token.raw)
        return
    # Only the token goes to standard output, so it can be piped to a secret store.
    sys.stdout.write(new_token.token + "\n")
    print_note = session.screen.print_note
    print_note(f"{new_token.token_id}: {new_token.name}, {new_token.role} of {new_token.tenant}.")
    print_note("Store the token now. It is not shown again.", "yellow")


def list_tokens(session: Session, limit: Limit = DEFAULT_LIST_LIMIT) -> None:
    """List tokens, newest first, without their secrets."""
    listed_tokens = fetch_up_to(
        session, limit, lambda max_items: session.client.tokens.list(limit=max_items)
    )
    answers.write_items(session, listed_tokens, lambda tokens: _print_tokens(session, tokens))


def _print_tokens(session: Session, tokens: "list[Token]") -> None:
    screen = session.screen
    if not tokens:
        screen.print_line("No tokens.")
        return
    columns = [
        Column("TOKEN"),
        Column("NAME", min_width=8),
        Column("ROLE"),
        Column("USED", min_width=7),
        Column("STATE", min_width=9),
    ]
    screen.print_table(columns, [_row(session, token) for token in tokens])


def _row(session: Session, token: "Token") -> list[Any]:
    screen = session.screen
    last_used = screen.relative_time(token.last_used_at) or "never"
    return [token.token_id, token.name, token.role, last_used, _state_text(session, token)]


def _state_text(session: Session, token: "Token") -> str:
    screen = session.screen
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "valid"
    is_expired = token.expires_at <= session.clock()
    return "expired" if is_expired else f"ends {screen.relative_time(token.expires_at)}"


def revoke(
    session: Session,
    reference: Annotated[str, typer.Argument(metavar="TOKEN", help="Id or name of the token.")],
) -> None:
    """Revoke a token. The server refuses it within a minute."""
    token_id = _find_token_id(session, reference)
    revoked_token = session.client.tokens.revoke(token_id)
    answers.write_item(
        session,
        revoked_token,
        lambda shown_token: session.screen.print_line(
            f"Revoked {shown_token.name} ({shown_token.token_id}).", "green"
        ),
    )


def webhook_secret(session: Session) -> None:
    """Print the secret that signs your webhooks, for their receivers."""
    secret = session.client.webhook_secret()
    if session.as_json:
        answers.write_json({"secret": secret})
    else:
        sys.stdout.write(secret + "\n")  # only the secret, so it can be piped to a secret store


def _find_token_id(session: Session, reference: str) -> str:
    """Return a token's id. A name stands for the only token of that name that is not revoked."""
    listed = list(session.client.tokens.list())
    if any(token.token_id == reference for token in listed):
        return reference
    namesakes = [
        candidate
        for candidate in listed
        if candidate.name == reference and candidate.revoked_at is None
    ]
    if not namesakes:
        raise CommandError(
            f"There is no token {reference!r}.",
            ExitCode.NOT_FOUND,
            "List the tokens with `punctual tokens list`.",
        )
    if len(namesakes) > 1:
        listing = "".join(f"\n  {token.token_id}" for token in namesakes)
        raise CommandError(
            f"{len(namesakes)} tokens are named {reference!r}. Use an id:{listing}",
            ExitCode.REFUSED,
        )
    return namesakes[0].token_id
