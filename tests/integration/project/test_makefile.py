"""The help of the Makefile is complete."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    output = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[1] for line in output.splitlines()] == phony[1].split()
