"""The program `punctual`: where it begins."""

import os
import sys


def main() -> None:
    try:
        # Inside, so that Ctrl-C while it loads ends it as quietly as later.
        from punctual_cli import completion
        from punctual_cli.program import app

        if completion.VARIABLE in os.environ:
            completion.prepare()
        app(prog_name="punctual")
    except KeyboardInterrupt:
        sys.exit(130)
