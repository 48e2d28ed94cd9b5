"""The program `punctual`: all of its commands together."""

import typer

app = typer.Typer(name="punctual", no_args_is_help=True, help="Hand jobs to Punctual.")


@app.callback()
def punctual() -> None:
    """Hand jobs to Punctual, and see what ran."""


def main() -> None:
    app()
