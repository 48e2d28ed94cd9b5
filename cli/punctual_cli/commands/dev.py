"""The command punctual dev, which runs a local node."""

import os
from pathlib import Path
from typing import Annotated

import typer

from punctual_cli.session import Session


def dev(
    _session: Session,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, envvar="PUNCTUAL_PORT", help="Port on 127.0.0.1.")
    ] = 8080,
    data: Annotated[
        Path,
        typer.Option(envvar="PUNCTUAL_DATA", help="Data folder of the node.", file_okay=False),
    ] = Path(".punctual"),
) -> None:
    """Run a local node on 127.0.0.1 until Ctrl-C."""
    from punctual.node.main import main

    env = {**os.environ, "PUNCTUAL_PORT": str(port), "PUNCTUAL_DATA": str(data)}
    raise typer.Exit(main(env))
