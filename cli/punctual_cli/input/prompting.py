"""Ask the user at the terminal."""

import getpass
import sys

from punctual_cli.errors import Trouble
from punctual_cli.session import Session


def confirmed(session: Session, question: str, yes: bool) -> bool:
    if yes:
        return True
    if session.as_json or not sys.stdin.isatty():
        raise Trouble(
            "Nothing was changed: nobody is here to say yes.", advice="Say it with --yes."
        )
    return _answer(f"{question} [y/N] ").lower() in ("y", "yes")


def asked(question: str, default: str) -> str:
    return _answer(f"{question} [{default}]: ") or default


def asked_in_secret(question: str) -> str:
    try:
        return getpass.getpass(f"{question}: ").strip()
    except EOFError:
        raise Trouble("No answer: the input ended.") from None


def _answer(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise Trouble("No answer: the input ended.")
    return line.strip()
