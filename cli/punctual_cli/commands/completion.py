"""The command punctual completion, which prints a shell's completion script."""

import os
import sys
from typing import Annotated

import typer
from typer.completion import get_completion_inspect_parameters

from punctual_cli.errors import Trouble
from punctual_cli.input.choices import Shell
from punctual_cli.session import Session

PROGRAM = "punctual"
COMPLETION_VARIABLE = "_PUNCTUAL_COMPLETE"
HOW = {
    Shell.BASH: '~/.bashrc:  eval "$(punctual completion bash)"',
    Shell.ZSH: '~/.zshrc, after compinit:  eval "$(punctual completion zsh)"',
    Shell.FISH: "punctual completion fish > ~/.config/fish/completions/punctual.fish",
}


def completion(
    session: Session,
    shell: Annotated[
        Shell | None,
        typer.Argument(metavar="SHELL", help="By default that of $SHELL."),
    ] = None,
) -> None:
    """Print what makes your shell complete words.

    Commands, options, and the names of jobs.
    """
    from punctual_cli.program import app

    prepare()
    chosen = shell or _usual()
    os.environ[COMPLETION_VARIABLE] = f"source_{chosen.value}"
    if sys.stdout.isatty():
        session.screen.note(f"For good, in {HOW[chosen]}")
    app(prog_name=PROGRAM)


def prepare() -> None:
    """Register Typer's shells.

    Typer does this only when its own completion options are requested.
    """
    get_completion_inspect_parameters()


def _usual() -> Shell:
    name = os.path.basename(os.environ.get("SHELL", ""))
    try:
        return Shell(name)
    except ValueError:
        raise Trouble("Which shell? punctual completion bash, zsh or fish.") from None
