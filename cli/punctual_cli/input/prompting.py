"""Ask the user at the terminal."""

import getpass
import sys

from punctual_cli.errors import CommandError
from punctual_cli.session import Session


def confirm(session: Session, question: str, yes: bool) -> bool:
    if yes:
        return True
    if session.as_json or not sys.stdin.isatty():
        raise CommandError(
            "Nothing was changed. The confirmation needs a terminal.", advice="Confirm with --yes."
        )
    return _read_answer(f"{question} [y/N] ").lower() in ("y", "yes")


def ask(question: str, default: str) -> str:
    return _read_answer(f"{question} [{default}]: ") or default


def ask_secret(question: str) -> str:
    try:
        return getpass.getpass(f"{question}: ").strip()
    except EOFError:
        raise CommandError("The input ended before an answer.") from None


def _read_answer(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise CommandError("The input ended before an answer.")
    return line.strip()
