"""Start the program `punctual`."""

import io
import os
import sys
from typing import TextIO, cast


def main() -> None:
    try:
        _prepare_streams()
        # The import stands inside the `try`, so Ctrl-C during loading also ends the program
        # quietly.
        from punctual_cli.commands import completion
        from punctual_cli.program import app

        if completion.COMPLETION_VARIABLE in os.environ:
            completion.register_shells()
        app(prog_name="punctual")
    except KeyboardInterrupt:
        sys.exit(130)


def _prepare_streams() -> None:
    """Replace closed standard streams, and escape characters that an encoding lacks."""
    sys.stdin = sys.stdin or _open_null("r")
    sys.stdout = sys.stdout or _open_null("w")
    sys.stderr = sys.stderr or _open_null("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_null(mode: str) -> TextIO:
    return cast(TextIO, open(os.devnull, mode))
