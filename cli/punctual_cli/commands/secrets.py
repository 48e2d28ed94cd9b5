"""The commands punctual secrets set, list and delete."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.input import completions, prompting
from punctual_cli.output import answers
from punctual_cli.output.columns import Column
from punctual_cli.session import Session

if TYPE_CHECKING:
    from punctual.client import Secret

MAX_SECRET_INPUT_BYTES = 64 * 1024  # more than a secret may have, so the server names its limit
MAX_NAME_CHARACTERS = 64

SecretName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the secret.",
        autocompletion=completions.complete_secrets,
        show_default=False,
    ),
]


def set_secret(
    session: Session,
    name: SecretName,
    values: Annotated[
        list[str] | None, typer.Argument(help="Refused: a value shows in lists.", hidden=True)
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", help="Refused: a value shows in lists.", hidden=True)
    ] = None,
) -> None:
    """Set a secret. The value comes from a prompt or from standard input.

    Tasks use it as {{secret:NAME}}. One line break at the end of standard input is left out.
    """
    if values or value is not None or "=" in name or len(name) > MAX_NAME_CHARACTERS:
        raise CommandError(
            "The value must not be on the command line. Other users see command lines in the list "
            "of processes, and the shell keeps them in its history.",
            advice="Run `punctual secrets set NAME` and type the value, or pipe it: "
            "`punctual secrets set NAME < FILE`. Replace the value if it was a real one.",
        )
    session.client.secrets.set(name, _read_value(name))
    if session.as_json:
        answers.write_json({"name": name})
    else:
        session.screen.print_line(f"Set {name}. Tasks use it as {{{{secret:{name}}}}}.", "green")


def _read_value(name: str) -> str:
    """Return the value from the terminal without an echo, or else from standard input."""
    if sys.stdin.isatty():
        value = prompting.ask_secret(f"Value of {name}")
    else:
        data = sys.stdin.buffer.read(MAX_SECRET_INPUT_BYTES)
        try:
            value = data.decode()
        except UnicodeDecodeError:
            raise CommandError(
                "The value is not UTF-8 text.", advice="Encode it, for example with base64."
            ) from None
        value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise CommandError("The value is empty.", advice="Type it, or pipe it in.")
    return value


def list_secrets(session: Session) -> None:
    """List the secrets, without their values."""
    answers.write_items(
        session, session.client.secrets.list(), lambda secrets: _print_secrets(session, secrets)
    )


def _print_secrets(session: Session, secrets: "list[Secret]") -> None:
    screen = session.screen
    if not secrets:
        screen.print_line("No secrets.")
        return
    columns = [Column("NAME", min_width=8), Column("SET", min_width=7), Column("BY", min_width=8)]
    screen.print_table(columns, [_row(session, secret) for secret in secrets])


def _row(session: Session, secret: "Secret") -> list[Any]:
    return [secret.name, session.screen.relative_time(secret.updated_at), secret.updated_by]


def delete(session: Session, name: SecretName) -> None:
    """Delete a secret. Runs that name it fail from then on."""
    from punctual.client import NotFound

    try:
        session.client.secrets.delete(name)
    except NotFound:
        raise CommandError(
            f"There is no secret {name!r}.",
            ExitCode.NOT_FOUND,
            "List the secrets with `punctual secrets list`.",
        ) from None
    if session.as_json:
        answers.write_json({"name": name})
    else:
        session.screen.print_line(f"Deleted {name}.", "green")
