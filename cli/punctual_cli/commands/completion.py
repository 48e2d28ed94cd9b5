"""The command punctual completion, which prints a shell's completion script."""

import os
import sys
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from punctual_cli.errors import CommandError
from punctual_cli.input.choices import Shell
from punctual_cli.session import Session

PROGRAM_NAME = "punctual"
COMPLETION_VARIABLE = "_PUNCTUAL_COMPLETE"
INSTALL_HINTS = {
    Shell.BASH: '~/.bashrc:  eval "$(punctual completion bash)"',
    Shell.ZSH: '~/.zshrc, after compinit:  eval "$(punctual completion zsh)"',
    Shell.FISH: "punctual completion fish > ~/.config/fish/completions/punctual.fish",
}


def completion(
    session: Session,
    shell: Annotated[
        Shell | None,
        typer.Argument(metavar="SHELL", help="Shell of the script. Default: the shell in $SHELL."),
    ] = None,
) -> None:
    """Print the completion script of a shell.

    It completes commands, options and the names of jobs.
    """
    from punctual_cli.program import app

    register_shells()
    chosen = shell or _default_shell()
    os.environ[COMPLETION_VARIABLE] = f"source_{chosen.value}"
    if sys.stdout.isatty():
        session.screen.print_note(f"To install it permanently, in {INSTALL_HINTS[chosen]}")
    app(prog_name=PROGRAM_NAME)


def register_shells() -> None:
    """Register Typer's shells.

    Typer does this only when its own completion options are requested.
    """
    get_completion_inspect_parameters()


def _default_shell() -> Shell:
    name = os.path.basename(os.environ.get("SHELL", ""))
    try:
        return Shell(name)
    except ValueError:
        raise CommandError(
            "The shell is unknown. Name it: punctual completion bash, zsh or fish."
        ) from None
