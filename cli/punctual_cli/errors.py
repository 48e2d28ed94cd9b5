"""Turn errors into a line that says what to do, and an exit code."""

import json
import sys
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import typer

from punctual_cli.output.terminal_text import plain


class Code(IntEnum):
    """Exit codes of the program."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    NOT_ALLOWED = 5
    UNAVAILABLE = 6
    TIMED_OUT = 7
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    Code.OK: "It is done, and what was waited for went well.",
    Code.FAILED: "The run did not succeed, a check found differences, or a health is not ok.",
    Code.USAGE: "The command line, a file or the configuration cannot be understood.",
    Code.NOT_FOUND: "There is no such job, run or token.",
    Code.REFUSED: "Fields are wrong, the state does not allow it, or it was changed meanwhile.",
    Code.NOT_ALLOWED: "No token, one that is not in force, or one whose role does not suffice.",
    Code.UNAVAILABLE: "The server does not answer, or asks to come back later.",
    Code.TIMED_OUT: "What was waited for has not come in time; it goes on.",
    Code.INTERRUPTED: "Ctrl-C.",
    Code.PIPE_CLOSED: "Who read the answer stopped reading.",
}


@dataclass(frozen=True)
class Told:
    """One failure, ready to show."""

    exit_code: Code
    message: str
    advice: str = ""
    code: str = ""
    errors: tuple[tuple[str, str], ...] = ()
    request_id: str = ""
    more: dict[str, Any] = field(default_factory=dict)


class Trouble(Exception):
    """A command cannot continue."""

    def __init__(self, message: str, exit_code: Code = Code.USAGE, advice: str = "") -> None:
        super().__init__(message)
        self.told = Told(exit_code, message, advice)


def told(error: Exception, url: str) -> Told | None:
    """Return the failure to show, or None for a bug in this program."""
    if isinstance(error, Trouble):
        return error.told
    if isinstance(error, OSError):
        if error.filename is None:
            return Told(Code.FAILED, f"The answer cannot be written: {error.strerror}.")
        return Told(Code.USAGE, f"{error.filename}: {error.strerror}.")
    if isinstance(error, UnicodeError):
        return Told(Code.USAGE, "The command line holds what is no text in UTF-8.")
    from punctual.client import errors

    if not isinstance(error, errors.PunctualError):
        return None
    if error.problem is None:
        return _without_answer(error, url)
    problem = error.problem
    return Told(
        _code(error),
        problem.detail or problem.title,
        _advice(error),
        problem.code,
        tuple((e.field, e.message) for e in problem.errors),
        problem.request_id or "",
    )


def _without_answer(error: Any, url: str) -> Told:
    from punctual.client import errors

    if isinstance(error, errors.WaitTimeout):
        return Told(Code.TIMED_OUT, error.message)
    if isinstance(error, errors.Misuse):
        return Told(Code.USAGE, error.message)
    if isinstance(error, errors.Unavailable):
        advice = (
            "Start a node here with `punctual dev`, or say where yours is: `punctual login`, "
            "PUNCTUAL_URL or --url."
        )
        if error.uncertain:
            advice = "It may have been carried out all the same: look before you repeat it."
        return Told(Code.UNAVAILABLE, error.message, advice)
    return Told(Code.UNAVAILABLE, error.message, f"{url} may not be a Punctual API.")


def _code(error: Any) -> Code:
    status = error.problem.status
    if status in (401, 403):
        return Code.NOT_ALLOWED
    if status == 404:
        return Code.NOT_FOUND
    if status in (429,) or status >= 500:
        return Code.UNAVAILABLE
    return Code.REFUSED


def _advice(error: Any) -> str:
    match error.problem.status:
        case 401:
            return "Log in with `punctual login`, or set PUNCTUAL_TOKEN to a token in force."
        case 403:
            return "`punctual whoami` says the role of this token: use one that may more."
        case 404:
            return "`punctual jobs list` shows what there is."
        case 412:
            return "Somebody changed it meanwhile: look at it, and try again."
        case 429 | 503 if error.retry_after:
            return f"Try again in {error.retry_after:g} s."
    return ""


def show(found: Told, as_json: bool) -> None:
    """Print a failure on standard error."""
    if as_json:
        value = {
            "exit_code": int(found.exit_code),
            "code": found.code or found.exit_code.name,
            "message": found.message,
            "advice": found.advice or None,
            "errors": [{"field": name, "message": text} for name, text in found.errors],
            "request_id": found.request_id or None,
            **found.more,
        }
        print(json.dumps({"error": value}, ensure_ascii=False), file=sys.stderr, flush=True)
        return
    head = typer.style("Error:", fg="red", bold=True)
    errors = [f"{name}: {text}" if name else text for name, text in found.errors]
    message = found.message
    # Drop a detail that only joins the messages of the fields.
    if message.rstrip(".") == "; ".join(errors).rstrip("."):
        errors = errors if len(errors) > 1 else []
        message = f"{len(errors)} fields are wrong:" if errors else message
    typer.echo(f"{head} {plain(message)}", err=True)
    for text in errors:
        typer.echo(f"  {plain(text)}", err=True)
    if found.advice:
        typer.echo(found.advice, err=True)
