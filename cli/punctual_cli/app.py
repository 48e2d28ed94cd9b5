"""The program `punctual`: where it begins."""

import io
import os
import sys
from typing import TextIO, cast


def main() -> None:
    try:
        _take_streams()
        # Inside, so that Ctrl-C while it loads ends it as quietly as later.
        from punctual_cli.commands import completion
        from punctual_cli.program import app

        if completion.COMPLETION_VARIABLE in os.environ:
            completion.prepare()
        app(prog_name="punctual")
    except KeyboardInterrupt:
        sys.exit(130)


def _take_streams() -> None:
    """A stream that is closed swallows, and one that cannot say a letter says its number."""
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nothing(mode: str) -> TextIO:
    return cast(TextIO, open(os.devnull, mode))
